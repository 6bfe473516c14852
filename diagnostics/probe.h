/* SPDX-License-Identifier: Apache-2.0
 *
 * probe: functions that may hang, crash, or need more than reading files. Each runs in a child
 * process of its own, until a common deadline: all at the same time, except load tests.
 *
 * A probe writes an answer (answer.h) and returns 0 or -errno. Its folder decides how it runs:
 *   probes/    a function of this program, in a forked child
 *   prober/    the program hvd-probe, which needs libc only: it opens the image's own libraries
 * (NCCL, CUDA, NVML, MPI, hwloc, ...) under the image's own loader. `hvd-probe NAME` prints its
 *              answer on standard output.
 * A probe changes nothing and leaves nothing behind, even when it is killed. It starts no shell.
 * The doctor does not wait for a child that cannot be killed (state D): init reaps it later.
 */
#ifndef HVD_DIAGNOSTICS_PROBE_H
#define HVD_DIAGNOSTICS_PROBE_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "diagnostics/machine.h"
#include "diagnostics/setting.h"

/* Runs in the child. Standard input and error are /dev/null, standard output is the pipe to the
 * parent, other descriptors are inherited. m is the live machine for reading files; it has no
 * answers of other probes. Appends the answer to out; returns 0 or -errno. */
typedef int probe_f(struct buf *out, const struct machine *m, const struct setting *s);

struct probe {
    const char *name;
    int level;    /* runs at this level and above */
    int ms;       /* time limit of this probe in ms, 0: the common limit */
    probe_f *run; /* NULL: hvd-probe NAME */
    bool alone;   /* a load test: runs after all others, one at a time */
};

struct probe_table {
    const struct probe *probes;
    size_t n;
};

/* One table for each file in probes/. probes_prober lists the probes that the program hvd-probe
 * runs. */
extern const struct probe_table probes_system, probes_kmsg, probes_sandbox, probes_procs,
    probes_shm, probes_storage;
extern const struct probe_table probes_network, probes_dns, probes_infiniband, probes_kubernetes,
    probes_active, probes_jobs, probes_prober;

/* NULL when unknown. */
const struct probe *probe_find(const char *name);

/* Runs these probes and adds their answers to m. Fails only with -ENOMEM. */
int probe_run(struct machine *m, const struct probe *const *probes, size_t n,
              const struct setting *s, struct err *err);

/* Runs the named probes of setting->level or less that m has no answer of, and adds their answers
 * to m. Returns when all have answered, or at latest after setting->timeout_ms, with load tests
 * twice that. -ENOENT: an unknown name, which is a bug in a check. */
int probe_ask(struct machine *m, const char *const *names, size_t n, const struct setting *s,
              struct err *err);

#endif
