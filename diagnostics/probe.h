/* SPDX-License-Identifier: Apache-2.0
 *
 * probe: questions that may hang, crash, or need more than reading files. Each runs in a child
 * process of its own, all of them at once, until a common deadline.
 *
 * A probe writes an answer (answer.h) and returns 0 or -errno. Where it stands decides how it runs:
 *   probes/    a function of this program, in a forked child
 *   prober/    the program hvd-probe, which needs libc only: it opens the image's own libraries
 * (NCCL, CUDA, NVML, MPI, hwloc, ...) under the image's own loader. `hvd-probe NAME` prints its
 *              answer on standard output.
 * A probe changes nothing and leaves nothing behind, even when it is killed. It does not shell out.
 * A child that cannot be killed (state D) is left to init: nobody waits for it.
 */
#ifndef HVD_DIAGNOSTICS_PROBE_H
#define HVD_DIAGNOSTICS_PROBE_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "diagnostics/machine.h"
#include "diagnostics/setting.h"

/* In the child: standard input and output are /dev/null, descriptors beyond are as they were. m is
 * the live machine for reading files; answers of other probes are not in it. */
typedef int probe_f(struct buf *out, const struct machine *m, const struct setting *s);

struct probe {
    const char *name;
    int level;    /* asked at this level and above */
    int ms;       /* its own limit, 0: the common one */
    probe_f *run; /* NULL: hvd-probe NAME */
    bool alone;   /* loads the machine: runs after the others, one at a time */
};

struct probe_table {
    const struct probe *probes;
    size_t n;
};

/* One a file of probes/, and prober.c for those of hvd-probe. */
extern const struct probe_table probes_system, probes_kmsg, probes_sandbox, probes_procs,
    probes_shm, probes_storage;
extern const struct probe_table probes_network, probes_dns, probes_infiniband, probes_kubernetes,
    probes_active, probes_jobs, probes_prober;

/* NULL when unknown. */
const struct probe *probe_find(const char *name);

/* Runs these probes and adds their answers to m. Fails only for want of memory. */
int probe_run(struct machine *m, const struct probe *const *probes, size_t n,
              const struct setting *s, struct err *err);

/* Asks the named probes (unknown names are a bug: -ENOENT) and puts their answers into m. Returns
 * when all have answered or setting->timeout_ms is over. */
int probe_ask(struct machine *m, const char *const *names, size_t n, const struct setting *s,
              struct err *err);

#endif
