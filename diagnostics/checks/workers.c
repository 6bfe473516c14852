/* SPDX-License-Identifier: Apache-2.0
 *
 * workers: what differs between the machines of a job: versions, settings, hardware, the bits of a
 * sum, speed. From the answer "workers" that `hvdrun --doctor -H ...` collects; without that answer
 * every check is skipped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/checks/workers_read.h"
#include "diagnostics/registry.h"

/* ---- differences ------------------------------------------------------------------------------
 */

static void check_versions(const struct view *v, struct result *r)
{
    static const struct {
        const char *key, *name;
    } all[] = {{"hvd", "libhvd"}, {"nccl", "NCCL"}, {"mpi", "MPI"}, {"driver", "NVIDIA driver"}};
    char text[400] = "", same[200] = "";
    int n;
    const struct answer *a = workers_ask(v, r, &n);
    if (!a)
        return;
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        char h0[WORKERS_HOST], h1[WORKERS_HOST];
        int i = workers_other(a, n, all[k].key);
        if (i >= 0)
            check_append(text, sizeof(text), "; ", "%s %s on %s, %s on %s", all[k].name,
                         workers_of(a, 0, all[k].key), workers_host(a, 0, h0),
                         workers_of(a, i, all[k].key), workers_host(a, i, h1));
        else if (answer_str_at(a, "worker", 0, all[k].key, NULL))
            check_append(same, sizeof(same), "; ", "%s %s", all[k].name,
                         workers_of(a, 0, all[k].key));
    }
    if (text[0])
        result_fail(r, "%s", text);
    else
        result_pass(r, "the same on %d workers: %s", n, same);
}

static void check_arch(const struct view *v, struct result *r)
{
    char h0[WORKERS_HOST], h1[WORKERS_HOST];
    int n;
    const struct answer *a = workers_ask(v, r, &n);
    if (!a)
        return;
    int i = workers_other(a, n, "arch");
    if (i < 0)
        result_pass(r, "%d workers are %s", n, workers_of(a, 0, "arch"));
    else
        result_fail(r, "%s is %s, %s is %s", workers_host(a, 0, h0), workers_of(a, 0, "arch"),
                    workers_host(a, i, h1), workers_of(a, i, "arch"));
}

static void check_gpus(const struct view *v, struct result *r)
{
    char h0[WORKERS_HOST], h1[WORKERS_HOST];
    int n;
    const struct answer *a = workers_ask(v, r, &n);
    if (!a)
        return;
    int i = workers_other(a, n, "gpus");
    if (i >= 0)
        result_warn(r, "%s has %s, %s has %s", workers_host(a, 0, h0), workers_of(a, 0, "gpus"),
                    workers_host(a, i, h1), workers_of(a, i, "gpus"));
    else if (answer_str_at(a, "worker", 0, "gpus", NULL))
        result_pass(r, "each of %d workers has %s", n, workers_of(a, 0, "gpus"));
    else
        result_pass(r, "no worker has a GPU");
}

static void check_nics(const struct view *v, struct result *r)
{
    char h0[WORKERS_HOST], h1[WORKERS_HOST];
    int n;
    const struct answer *a = workers_ask(v, r, &n);
    if (!a)
        return;
    int i = workers_other(a, n, "nics");
    if (i < 0)
        result_pass(r, "each of %d workers has %s address%s", n, workers_of(a, 0, "nics"),
                    strcmp(workers_of(a, 0, "nics"), "1") == 0 ? "" : "es");
    else
        result_warn(r, "%s has %s addresses, %s has %s", workers_host(a, 0, h0),
                    workers_of(a, 0, "nics"), workers_host(a, i, h1), workers_of(a, i, "nics"));
}

/* Returns whether "NAME=value" is a whole line of text. */
static bool has_line(const char *text, const char *line, size_t len)
{
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        if (n == len && strncmp(p, line, len) == 0)
            return true;
        p += n + (p[n] == '\n');
    }
    return false;
}

/* Appends the variable names of lines of a that are not in b, each once. */
static void add_names(const char *a, const char *b, char *dst, size_t size)
{
    for (const char *p = a; *p;) {
        size_t n = strcspn(p, "\n"), name = strcspn(p, "=\n");
        char word[64];
        snprintf(word, sizeof(word), "%.*s", (int)name, p);
        if (n && !has_line(b, p, n) && !strstr(dst, word))
            check_append(dst, size, "; ", "%s", word);
        p += n + (p[n] == '\n');
    }
}

static void check_env(const struct view *v, struct result *r)
{
    char names[300] = "", h0[96], h1[96];
    int n;
    const struct answer *a = workers_ask(v, r, &n);
    if (!a)
        return;
    int i = workers_other(a, n, "env");
    if (i < 0) {
        result_pass(r, "NCCL_*, HVD_*, OMPI_MCA_* ... are the same on %d workers", n);
        return;
    }
    add_names(workers_of(a, 0, "env"), workers_of(a, i, "env"), names, sizeof(names));
    add_names(workers_of(a, i, "env"), workers_of(a, 0, "env"), names, sizeof(names));
    result_warn(r, "%s and %s differ in %s", workers_host(a, 0, h0), workers_host(a, i, h1), names);
}

/* ---- work -------------------------------------------------------------------------------------
 */

static void check_exact(const struct view *v, struct result *r)
{
    char text[300] = "", h[WORKERS_HOST];
    int n;
    const struct answer *a = workers_ask(v, r, &n);
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        const char *differ = answer_str_at(a, "worker", i, "differ", NULL);
        if (differ)
            check_append(text, sizeof(text), "; ", "%s says: %s", workers_host(a, i, h), differ);
    }
    int rounds = (int)answer_int(a, "exact.rounds", 0);
    if (text[0])
        result_fail(r, "%s", text);
    else if (rounds == 0)
        result_skip(r, "no allreduce finished");
    else
        result_pass(r, "%d sums of %lld bytes over %d workers: the same bits everywhere", rounds,
                    (long long)answer_int(a, "exact.bytes", 0), n);
}

static void check_straggler(const struct view *v, struct result *r)
{
    static const char *const keys[] = {"compute_ms", "memory_ms"};
    char text[300] = "", h[WORKERS_HOST];
    int n;
    const struct answer *a = workers_ask(v, r, &n);
    if (!a)
        return;
    auto_free double *ms = calloc((size_t)n, sizeof(*ms));
    for (int k = 0; k < 2 && ms; k++) {
        for (int i = 0; i < n; i++)
            ms[i] = strtod(workers_of(a, i, keys[k]), NULL);
        qsort(ms, (size_t)n, sizeof(*ms), workers_compare);
        double median = ms[(n - 1) / 2];
        for (int i = 0; i < n; i++) {
            double own = strtod(workers_of(a, i, keys[k]), NULL);
            if (median > 0 && own > 2 * median)
                check_append(text, sizeof(text), "; ",
                             "%s takes %.1f ms for what takes others %.1f ms (%s)",
                             workers_host(a, i, h), own, median, k ? "memory" : "arithmetic");
        }
    }
    if (text[0])
        result_warn(r, "%s", text);
    else
        result_pass(r, "none of %d workers takes twice as long as the others", n);
}

#define ONE_IMAGE "the same image, by digest, on every worker"

static const struct check rows[] = {
    {WORKERS_CHECK("xw-version-skew", "HVD9601", check_versions),
     .title = "the same versions on every worker",
     .why =
         "NCCL ends with \"Mismatched NCCL version detected\" or hangs; mixed MPIs cannot start.",
     .fix = {"docker run IMAGE@sha256:...: " ONE_IMAGE,
             "image: name@sha256:... in the template: " ONE_IMAGE,
             "the same packages and driver on every host"},
     .action = ACTION_VERSION,
     .explain = "Each worker says which libhvd, NCCL, MPI and driver it has; any difference fails.",
     .refs = {NCCL_TROUBLE}},
    {WORKERS_CHECK("xw-arch-skew", "HVD9602", check_arch), .title = "one architecture",
     .why = "Ranks of different architectures round differently and cannot share binaries.",
     .fix = {"hosts of one architecture for a job", "nodeSelector: kubernetes.io/arch: amd64",
             "hosts of one architecture for a job"},
     .action = ACTION_JOB, .explain = "uname's machine on every worker; any difference fails.",
     .refs = {NCCL_TROUBLE}},
    {WORKERS_CHECK("xw-gpu-sku-skew", "HVD9603", check_gpus),
     .title = "the same GPUs on every worker",
     .why = "All ranks wait for the slowest GPU in each step; NCCL before 2.24.3 hangs with mixed "
            "architectures.",
     .fix = {"hosts with the same GPUs", "nodeSelector: nvidia.com/gpu.product: ...",
             "hosts with the same GPUs"},
     .action = ACTION_JOB,
     .explain = "The models in /proc/driver/nvidia/gpus of each worker, in order; a difference "
                "warns.",
     .refs = {NCCL_TROUBLE}},
    {WORKERS_CHECK("xw-nic-count-skew", "HVD9604", check_nics),
     .title = "the same number of addresses on every worker",
     .why = "NCCL ends with \"Detected mixed local Net device counts\", or uses the slowest path.",
     .fix = {"--network=host on all workers or on none", "hostNetwork on all pods or on none",
             "NCCL_SOCKET_IFNAME and HVD_IFACE name interfaces that every host has"},
     .action = ACTION_NETWORK,
     .explain = "Addresses of interfaces that are up, without loopback; a difference warns.",
     .refs = {NCCL_TROUBLE}},
    {WORKERS_CHECK("xw-env-skew", "HVD9605", check_env),
     .title = "the same settings on every worker",
     .why = "Ranks that choose different algorithms or interfaces wait for each other forever.",
     .fix = {"-e NAME=value on every worker", "env: in the template, not on one pod",
             "hvdrun -x NAME gives a variable to all hosts; look for it in ~/.bashrc there"},
     .action = ACTION_ENVIRONMENT,
     .explain = "NCCL_*, OMPI_MCA_*, PMIX_MCA_*, UCX_*, FI_*, OMP_*, MKL_*, CUDA_*, HVD_*, "
                "HOROVOD_*, TORCH_*, PYTORCH_*, LD_PRELOAD; what differs by design (ranks, names, "
                "interfaces, keys) is left out. A difference warns.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"}},
    {WORKERS_CHECK("xw-allreduce-exact", "HVD9609", check_exact),
     .title = "sums have the same bits everywhere",
     .why = "Ranks whose weights differ train different models without saying so; damaged bytes "
            "mean a broken memory module, processor or network card.",
     .fix = {"take the worker that differs out of the job and test its memory",
             "kubectl cordon the node that differs and test its memory",
             "memtester, mcelog, ethtool -S on the host that differs"},
     .action = ACTION_REPLACE_NODE,
     .explain = "Allreduces of 4 MiB of fp32 for 3 s, four inputs in turn; each worker's bits are "
                "compared with the others' and with the first time. Any difference fails.",
     .refs = {"https://arxiv.org/abs/2102.11245"}},
    {WORKERS_CHECK("xw-straggler", "HVD9610", check_straggler), .title = "no worker is slow",
     .why = "All ranks wait for the slowest in each step.",
     .fix = {"the same --cpus on every worker", "the same CPU limits; Guaranteed QoS",
             "top for other load; governor performance; power caps and temperatures"},
     .action = ACTION_HOST,
     .explain = "A fixed loop of arithmetic and a copy of 16 MiB, the median of five; more than "
                "twice the median of all workers warns.",
     .refs = {"https://arxiv.org/abs/2402.15627"}},
};

const struct check_table checks_workers = {rows, sizeof(rows) / sizeof(rows[0])};
