/* SPDX-License-Identifier: Apache-2.0
 *
 * probes: the probes of hvd-probe that print more than a library's version (libs.h has the others).
 * Each prints its answer (out.h) and returns 0 or -errno. path: a file to examine instead, or NULL.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_PROBES_H
#define HVD_DIAGNOSTICS_PROBER_PROBES_H

typedef int prober_f(const char *path);

/* libnvidia-ml.so.1: driver, GPUs, their health and processes. */
prober_f probe_nvml;
/* libcuda.so.1: cuInit, driver version, devices, peer access; every copy of libcuda. */
prober_f probe_cuda;
/* The network plugin that NCCL would load: NCCL_NET_PLUGIN, libnccl-net.so. */
prober_f probe_plugin;
/* libhvd.so beside this program and in Python packages. */
prober_f probe_hvd;
/* Python interpreters, torch, horovod, the C library; read from files, no program is started. */
prober_f probe_framework;
/* The libraries that installed extensions need (glibc, libnccl, libmpi ...) and whether they can
 * be found; path: of one file. */
prober_f probe_elf;

#endif
