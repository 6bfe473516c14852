/* SPDX-License-Identifier: Apache-2.0
 *
 * probes: those of hvd-probe that are more than a library's version (libs.h has these). Each prints
 * its answer (out.h) and returns 0 or -errno. path: the file to look at instead, or NULL.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_PROBES_H
#define HVD_DIAGNOSTICS_PROBER_PROBES_H

typedef int prober_f(const char *path);

/* libnvidia-ml.so.1: driver, GPUs, health, who uses them. */
prober_f probe_nvml;
/* libcuda.so.1: cuInit, driver version, devices, peers; every copy of libcuda there is. */
prober_f probe_cuda;
/* The network plugin that NCCL would load: NCCL_NET_PLUGIN, libnccl-net.so. */
prober_f probe_plugin;
/* libhvd.so beside this program and in Python packages. */
prober_f probe_hvd;
/* Python interpreters, torch, horovod, the C library; read from files, nothing is started. */
prober_f probe_framework;
/* What installed extensions need (glibc, libnccl, libmpi ...) and whether it resolves; path: one
 * file. */
prober_f probe_elf;

#endif
