/* SPDX-License-Identifier: Apache-2.0
 *
 * registry: the list of all checks. Const; any thread.
 */
#ifndef HVD_DIAGNOSTICS_REGISTRY_H
#define HVD_DIAGNOSTICS_REGISTRY_H

#include "core/base/err.h"
#include "diagnostics/check.h"

/* One table for each file in checks/. */
extern const struct check_table checks_host, checks_kernel_log, checks_cgroup, checks_limits,
    checks_shm, checks_memory, checks_cpu, checks_hwloc, checks_gpu, checks_gpu_use,
    checks_gpu_health, checks_cuda, checks_nccl, checks_nccl_settings, checks_nccl_ifname,
    checks_mpi, checks_mpi_parts, checks_interfaces, checks_network, checks_infiniband,
    checks_sandbox, checks_storage, checks_k8s_dns, checks_kubernetes, checks_framework,
    checks_active, checks_workers, checks_workers_paths, checks_jobs;

/* The i-th check, table after table in the order of registry.c; NULL at the end. */
const struct check *registry_at(size_t i);
size_t registry_count(void);

/* Finds a check by id or code; -ENOENT with "did you mean" in err. */
int registry_find(const char *name, const struct check **ret, struct err *err);

/* Returns whether a pattern of --only or --skip selects c: an id, a code, a group's name, or
 * "prefix-*". */
bool registry_matches(const struct check *c, const char *pattern);

#endif
