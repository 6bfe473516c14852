/* SPDX-License-Identifier: Apache-2.0
 *
 * workers: what differs between the machines of a job, and what is wrong between them: from the
 * answer "workers" that `hvdrun --doctor -H ...` collects (diagnostics/workers/workers.h). Without
 * it each is skipped.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/registry.h"

#define WORKERS_MAX 4096
#define SKEW_WARN   100  /* ms */
#define SKEW_FAIL   1000 /* ms */

static const struct answer *ask(const struct view *v, struct result *r, int *ret_size)
{
    const struct answer *a = machine_answer(v->machine, "workers");
    int n = (int)answer_int(a, "size", 0);
    if (a->state != ANSWER_OK || n < 1 || n > WORKERS_MAX) {
        result_skip(r, "only between machines: hvdrun --doctor -H h1,h2");
        return NULL;
    }
    *ret_size = n;
    return a;
}

/* "h1" or, where two workers say the same name, "h1 (worker 3)". */
static const char *host(const struct answer *a, int i, char dst[96])
{
    snprintf(dst, 96, "%.60s (worker %d)", answer_str_at(a, "worker", i, "host", "?"), i);
    return dst;
}

static const char *of(const struct answer *a, int i, const char *key)
{
    return answer_str_at(a, "worker", i, key, "none");
}

/* The first worker that says something else than worker 0, -1: none. */
static int other(const struct answer *a, int n, const char *key)
{
    for (int i = 1; i < n; i++)
        if (strcmp(of(a, i, key), of(a, 0, key)) != 0)
            return i;
    return -1;
}

static void add(char *dst, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void add(char *dst, size_t size, const char *fmt, ...)
{
    size_t len = strlen(dst);
    va_list ap;
    va_start(ap, fmt);
    if (len && len + 3 < size)
        len += (size_t)snprintf(dst + len, size - len, "; ");
    vsnprintf(dst + len, size - len, fmt, ap);
    va_end(ap);
}

/* ---- differences ------------------------------------------------------------------------------
 */

static void check_versions(const struct view *v, struct result *r)
{
    static const struct {
        const char *key, *name;
    } all[] = {{"hvd", "libhvd"}, {"nccl", "NCCL"}, {"mpi", "MPI"}, {"driver", "NVIDIA driver"}};
    char text[400] = "", same[200] = "";
    int n;
    const struct answer *a = ask(v, r, &n);
    if (!a)
        return;
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        char h0[96], h1[96];
        int i = other(a, n, all[k].key);
        if (i >= 0)
            add(text, sizeof(text), "%s %s on %s, %s on %s", all[k].name, of(a, 0, all[k].key),
                host(a, 0, h0), of(a, i, all[k].key), host(a, i, h1));
        else if (answer_str_at(a, "worker", 0, all[k].key, NULL))
            add(same, sizeof(same), "%s %s", all[k].name, of(a, 0, all[k].key));
    }
    if (text[0])
        result_fail(r, "%s", text);
    else
        result_pass(r, "the same on %d workers: %s", n, same);
}

static void check_arch(const struct view *v, struct result *r)
{
    char h0[96], h1[96];
    int n;
    const struct answer *a = ask(v, r, &n);
    if (!a)
        return;
    int i = other(a, n, "arch");
    if (i < 0)
        result_pass(r, "%d workers are %s", n, of(a, 0, "arch"));
    else
        result_fail(r, "%s is %s, %s is %s", host(a, 0, h0), of(a, 0, "arch"), host(a, i, h1),
                    of(a, i, "arch"));
}

static void check_gpus(const struct view *v, struct result *r)
{
    char h0[96], h1[96];
    int n;
    const struct answer *a = ask(v, r, &n);
    if (!a)
        return;
    int i = other(a, n, "gpus");
    if (i >= 0)
        result_warn(r, "%s has %s, %s has %s", host(a, 0, h0), of(a, 0, "gpus"), host(a, i, h1),
                    of(a, i, "gpus"));
    else if (answer_str_at(a, "worker", 0, "gpus", NULL))
        result_pass(r, "each of %d workers has %s", n, of(a, 0, "gpus"));
    else
        result_pass(r, "no worker has a GPU");
}

static void check_nics(const struct view *v, struct result *r)
{
    char h0[96], h1[96];
    int n;
    const struct answer *a = ask(v, r, &n);
    if (!a)
        return;
    int i = other(a, n, "nics");
    if (i < 0)
        result_pass(r, "each of %d workers has %s address%s", n, of(a, 0, "nics"),
                    strcmp(of(a, 0, "nics"), "1") == 0 ? "" : "es");
    else
        result_warn(r, "%s has %s addresses, %s has %s", host(a, 0, h0), of(a, 0, "nics"),
                    host(a, i, h1), of(a, i, "nics"));
}

/* Is "NAME=value" a whole line of text? */
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

/* Names whose lines of a are not in b, each once. */
static void add_names(const char *a, const char *b, char *dst, size_t size)
{
    for (const char *p = a; *p;) {
        size_t n = strcspn(p, "\n"), name = strcspn(p, "=\n");
        char word[64];
        snprintf(word, sizeof(word), "%.*s", (int)name, p);
        if (n && !has_line(b, p, n) && !strstr(dst, word))
            add(dst, size, "%s", word);
        p += n + (p[n] == '\n');
    }
}

static void check_env(const struct view *v, struct result *r)
{
    char names[300] = "", h0[96], h1[96];
    int n;
    const struct answer *a = ask(v, r, &n);
    if (!a)
        return;
    int i = other(a, n, "env");
    if (i < 0) {
        result_pass(r, "NCCL_*, HVD_*, OMPI_MCA_* ... are the same on %d workers", n);
        return;
    }
    add_names(of(a, 0, "env"), of(a, i, "env"), names, sizeof(names));
    add_names(of(a, i, "env"), of(a, 0, "env"), names, sizeof(names));
    result_warn(r, "%s and %s differ in %s", host(a, 0, h0), host(a, i, h1),
                names[0] ? names : "their order");
}

/* ---- paths ------------------------------------------------------------------------------------
 */

/* Calls each for all entries of LIST_I of all workers. */
typedef void each_f(void *arg, const struct answer *a, const char *list, int k, int from);

static void each_entry(const struct answer *a, int n, const char *kind, each_f *each, void *arg)
{
    for (int i = 0; i < n; i++) {
        char list[32];
        snprintf(list, sizeof(list), "%s_%d", kind, i);
        int count = answer_count(a, list);
        for (int k = 0; k < count; k++)
            each(arg, a, list, k, i);
    }
}

struct matrix {
    int failed, cut; /* addresses; pairs without any */
    char text[300];
};

static void see_connect(void *arg, const struct answer *a, const char *list, int k, int from)
{
    struct matrix *m = arg;
    char h0[96], h1[96], key[32];
    int to = (int)answer_int_at(a, list, k, "to", -1), same = 0;
    snprintf(key, sizeof(key), "address_%d", to);
    int count = answer_count(a, list);
    for (int i = 0; i < count; i++)
        same += answer_int_at(a, list, i, "to", -1) == to;
    m->cut += same >= answer_count(a, key);
    if (m->failed++ < 3)
        add(m->text, sizeof(m->text), "%s to %s at %s: %s", host(a, from, h0), host(a, to, h1),
            answer_str_at(a, list, k, "ip", "?"), answer_str_at(a, list, k, "error", "?"));
}

static void check_connect(const struct view *v, struct result *r)
{
    struct matrix m = {0};
    int n, tried = 0;
    const struct answer *a = ask(v, r, &n);
    if (!a)
        return;
    each_entry(a, n, "connect", see_connect, &m);
    for (int i = 0; i < n; i++)
        tried += (int)answer_int_at(a, "worker", i, "tried", 0);
    result_observed(r, "%d of %d failed", m.failed, tried);
    result_expected(r, "0 failed");
    if (m.failed == 0)
        result_pass(r, "%d connections between %d workers, every address of each", tried, n);
    else if (m.cut)
        result_fail(r,
                    "%d of %d connections failed, and some workers do not reach others at all: "
                    "%s",
                    m.failed, tried, m.text);
    else
        result_warn(r,
                    "%d of %d connections failed, every worker is reached by another address: %s",
                    m.failed, tried, m.text);
}

struct pairs {
    int n, broken;
    bool swallowed; /* a path with round trips stops at payloads */
    double *large;  /* [n] */
    double worst_skew, slowest;
    char skew[300], text[300], slow[300];
};

static void count_pair(void *arg, const struct answer *a, const char *list, int k, int from)
{
    struct pairs *p = arg;
    (void)a, (void)list, (void)k, (void)from;
    p->n++;
}

static void see_pair(void *arg, const struct answer *a, const char *list, int k, int from)
{
    struct pairs *p = arg;
    char h0[96], h1[96];
    int to = (int)answer_int_at(a, list, k, "to", -1);
    const char *ip = answer_str_at(a, list, k, "ip", "?");
    const char *error = answer_str_at(a, list, k, "error", NULL);
    double skew = strtod(answer_str_at(a, list, k, "skew_ms", "0"), NULL);
    double large = strtod(answer_str_at(a, list, k, "large_mbs", "0"), NULL);
    host(a, from, h0);
    host(a, to, h1);
    if (fabs(skew) >= fabs(p->worst_skew)) {
        p->worst_skew = skew;
        snprintf(p->skew, sizeof(p->skew), "the clock of %.60s is %.1f ms %s that of %.60s", h1,
                 fabs(skew), skew < 0 ? "behind" : "ahead of", h0);
    }
    if (error) {
        p->swallowed |= strncmp(answer_str_at(a, list, k, "part", ""), "payloads", 8) == 0;
        if (p->broken++ < 3)
            add(p->text, sizeof(p->text), "%s to %s at %s: %s: %s", h0, h1, ip,
                answer_str_at(a, list, k, "part", "?"), error);
        return;
    }
    p->large[p->n++] = large;
    if (p->slowest == 0 || large < p->slowest) {
        p->slowest = large;
        snprintf(p->slow, sizeof(p->slow), "%.60s to %.60s at %s", h0, h1, ip);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* False: the result is set. large is the caller's to free. */
static bool read_pairs(const struct view *v, struct result *r, struct pairs *p, int *ret_n)
{
    const struct answer *a = ask(v, r, ret_n);
    *p = (struct pairs){0};
    if (!a)
        return false;
    each_entry(a, *ret_n, "pair", count_pair, p);
    p->large = calloc((size_t)p->n + 1, sizeof(*p->large));
    if (!p->large || p->n == 0) {
        free(p->large);
        result_skip(r, p->n ? "no memory" : "no two workers reach each other");
        return false;
    }
    p->n = 0;
    each_entry(a, *ret_n, "pair", see_pair, p);
    qsort(p->large, (size_t)p->n, sizeof(*p->large), compare);
    return true;
}

static void check_pairs(const struct view *v, struct result *r)
{
    struct pairs p;
    int n;
    if (!read_pairs(v, r, &p, &n))
        return;
    double median = p.n ? p.large[p.n / 2] : 0;
    result_observed(r, "%.0f MB/s at least, %.0f median", p.slowest, median);
    if (p.broken)
        result_fail(r, "%d paths break down under load: %s%s", p.broken, p.text,
                    p.swallowed ? " (small packets pass, large ones do not: an MTU on the way)"
                                : "");
    else if (p.slowest < median / 2)
        result_warn(r, "%s: %.0f MB/s, half of the pairs do %.0f MB/s or more", p.slow, p.slowest,
                    median);
    else
        result_pass(r, "%d paths: %.0f MB/s at least with payloads of 1 MiB, %.0f MB/s median", p.n,
                    p.slowest, median);
    free(p.large);
}

static void check_clocks(const struct view *v, struct result *r)
{
    struct pairs p;
    int n;
    if (!read_pairs(v, r, &p, &n))
        return;
    free(p.large);
    result_observed(r, "%.1f ms", fabs(p.worst_skew));
    result_expected(r, "<= %d ms", SKEW_WARN);
    if (fabs(p.worst_skew) > SKEW_FAIL)
        result_fail(r, "%s", p.skew);
    else if (fabs(p.worst_skew) > SKEW_WARN)
        result_warn(r, "%s", p.skew);
    else
        result_pass(r, "the clocks of %d workers differ by %.1f ms at most", n, fabs(p.worst_skew));
}

/* ---- work -------------------------------------------------------------------------------------
 */

static void check_exact(const struct view *v, struct result *r)
{
    char text[300] = "", h[96];
    int n;
    const struct answer *a = ask(v, r, &n);
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        const char *differ = answer_str_at(a, "worker", i, "differ", NULL);
        if (differ)
            add(text, sizeof(text), "%s says: %s", host(a, i, h), differ);
    }
    int rounds = (int)answer_int(a, "exact.rounds", 0);
    if (text[0])
        result_fail(r, "%s", text);
    else if (rounds == 0)
        result_skip(r, "no sum was made");
    else
        result_pass(r, "%d sums of %lld bytes over %d workers: the same bits everywhere", rounds,
                    (long long)answer_int(a, "exact.bytes", 0), n);
}

static void check_straggler(const struct view *v, struct result *r)
{
    static const char *const keys[] = {"compute_ms", "memory_ms"};
    char text[300] = "", h[96];
    int n;
    const struct answer *a = ask(v, r, &n);
    if (!a)
        return;
    auto_free double *ms = calloc((size_t)n, sizeof(*ms));
    for (int k = 0; k < 2 && ms; k++) {
        for (int i = 0; i < n; i++)
            ms[i] = strtod(of(a, i, keys[k]), NULL);
        qsort(ms, (size_t)n, sizeof(*ms), compare);
        double median = ms[(n - 1) / 2];
        for (int i = 0; i < n; i++) {
            double own = strtod(of(a, i, keys[k]), NULL);
            if (median > 0 && own > 2 * median)
                add(text, sizeof(text), "%s takes %.1f ms for what takes others %.1f ms (%s)",
                    host(a, i, h), own, median, k ? "memory" : "arithmetic");
        }
    }
    if (text[0])
        result_warn(r, "%s", text);
    else
        result_pass(r, "none of %d workers is half as fast as the others", n);
}

#define CHECK(ID, CODE, RUN)                                                                       \
    .id = ID, .code = CODE, .group = GROUP_WORKERS, .level = 3, .run = RUN,                        \
    .needs = "hvdrun --doctor -H h1,h2"

#define NCCL_TROUBLE                                                                               \
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
#define ONE_IMAGE "the same image, by digest, on every worker"

static const struct check rows[] = {
    {CHECK("xw-version-skew", "HVD9601", check_versions),
     .title = "the same versions on every worker",
     .why =
         "NCCL ends with \"Mismatched NCCL version detected\" or hangs; mixed MPIs cannot start.",
     .fix = {"docker run IMAGE@sha256:...: " ONE_IMAGE,
             "image: name@sha256:... in the template: " ONE_IMAGE,
             "the same packages and driver on every host"},
     .action = ACTION_VERSION,
     .explain = "Each worker says which libhvd, NCCL, MPI and driver it has; any difference fails.",
     .refs = {NCCL_TROUBLE}},
    {CHECK("xw-arch-skew", "HVD9602", check_arch), .title = "one architecture",
     .why = "Ranks of different architectures round differently and cannot share binaries.",
     .fix = {"hosts of one architecture for a job", "nodeSelector: kubernetes.io/arch: amd64",
             "hosts of one architecture for a job"},
     .action = ACTION_JOB, .explain = "uname's machine on every worker; any difference fails.",
     .refs = {NCCL_TROUBLE}},
    {CHECK("xw-gpu-sku-skew", "HVD9603", check_gpus), .title = "the same GPUs on every worker",
     .why = "All wait for the slowest GPU in each step; NCCL before 2.24.3 hangs with mixed "
            "architectures.",
     .fix = {"hosts with the same GPUs", "nodeSelector: nvidia.com/gpu.product: ...",
             "hosts with the same GPUs"},
     .action = ACTION_JOB,
     .explain = "The models in /proc/driver/nvidia/gpus of each worker, in order; a difference "
                "warns.",
     .refs = {NCCL_TROUBLE}},
    {CHECK("xw-nic-count-skew", "HVD9604", check_nics),
     .title = "as many interfaces on every worker",
     .why = "NCCL ends with \"Detected mixed local Net device counts\", or uses the slowest path.",
     .fix = {"--network=host on all workers or on none", "hostNetwork on all pods or on none",
             "NCCL_SOCKET_IFNAME and HVD_IFACE name interfaces that every host has"},
     .action = ACTION_NETWORK,
     .explain = "Addresses of interfaces that are up, without loopback; a difference warns.",
     .refs = {NCCL_TROUBLE}},
    {CHECK("xw-env-skew", "HVD9605", check_env), .title = "the same settings on every worker",
     .why = "Ranks that choose different algorithms or interfaces wait for each other for ever.",
     .fix = {"-e NAME=value on every worker", "env: in the template, not on one pod",
             "hvdrun -x NAME gives a variable to all hosts; look for it in ~/.bashrc there"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "NCCL_*, OMPI_MCA_*, PMIX_MCA_*, UCX_*, FI_*, OMP_*, MKL_*, CUDA_*, HVD_*, TORCH_*, "
         "PYTORCH_*, LD_PRELOAD; what differs by design (ranks, names, interfaces, keys) is "
         "left out. A difference warns.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"}},
    {CHECK("xw-connect-matrix", "HVD9606", check_connect),
     .title = "every worker reaches every other",
     .why = "A firewall or a wrong route between two of many hosts stops the job at its start or "
            "at its first large message.",
     .fix = {"docker network: one network for all; --network=host where ports are not published",
             "a NetworkPolicy that allows all ports between the pods of the job",
             "open the ephemeral ports (sysctl net.ipv4.ip_local_port_range) between the hosts; "
             "HVD_IFACE and NCCL_SOCKET_IFNAME name the interfaces that work"},
     .action = ACTION_NETWORK,
     .explain = "Each worker connects to every address of every other at an ephemeral port, within "
                "2 s. No address of a worker answers: fails; some do not: warns.",
     .refs = {NCCL_TROUBLE}},
    {CHECK("xw-pair-bandwidth", "HVD9607", check_pairs),
     .title = "small and large payloads between pairs",
     .why = "A link that lost packets or fell back to a lower rate slows all; an MTU that is too "
            "large somewhere lets small packets through and swallows large ones.",
     .fix = {"docker network create -o com.docker.network.driver.mtu=1400 ...",
             "the MTU of the pod network (CNI) below that of the nodes",
             "ip link set dev eth0 mtu 1500 on every host; ethtool eth0 for the rate and errors"},
     .action = ACTION_NETWORK,
     .explain = "In each of up to 8 rounds every worker talks to one other: 16 round trips, "
                "payloads of 8 KiB for 150 ms and of 1 MiB for 300 ms, over every address. One "
                "that stops fails; one slower than half of the median warns.",
     .refs = {"https://www.rfc-editor.org/rfc/rfc2923"}},
    {CHECK("xw-clock-skew", "HVD9608", check_clocks), .title = "clocks agree",
     .why = "Logs of several workers cannot be put in order; tokens and certificates are refused.",
     .fix = {"a container has the clock of its host: start chronyd there",
             "a pod has the clock of its node: start chronyd there",
             "systemctl enable --now chronyd; chronyc tracking"},
     .action = ACTION_HOST,
     .explain = "16 round trips with each peer's clock; the one with the shortest trip counts. "
                "More than 100 ms warns, more than 1 s fails.",
     .refs = {"https://chrony-project.org/documentation.html"}},
    {CHECK("xw-allreduce-exact", "HVD9609", check_exact),
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
    {CHECK("xw-straggler", "HVD9610", check_straggler), .title = "no worker is slow",
     .why = "All wait for the slowest in each step.",
     .fix = {"the same --cpus on every worker", "the same CPU limits; Guaranteed QoS",
             "top for other load; governor performance; power caps and temperatures"},
     .action = ACTION_HOST,
     .explain = "A fixed loop of arithmetic and a copy of 16 MiB, the median of five; more than "
                "twice the median of all workers warns.",
     .refs = {"https://arxiv.org/abs/2402.15627"}},
};

const struct check_table checks_workers = {rows, sizeof(rows) / sizeof(rows[0])};
