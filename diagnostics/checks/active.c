/* SPDX-License-Identifier: Apache-2.0
 *
 * active: what the tests that load this machine measured (probes/active.c). The limits are our own
 * and far below what a healthy machine reaches. To find a machine that is only slower than its
 * neighbours, compare reports (hvd-doctor diff).
 */
#include "diagnostics/registry.h"

#define GB 1e9

/* Bytes a second; 0: the probe gave no figure, and the result is set. */
static double rate(const struct view *v, struct result *r, const char *probe, const char *what)
{
    const struct answer *a = machine_answer(v->machine, probe);
    if (!result_needs(r, a, what))
        return 0;
    double seconds = answer_num(a, "seconds", 0), bytes = answer_num(a, "bytes", 0);
    double value = seconds > 0 ? bytes / seconds : 0;
    result_observed(r, "%.2f GB/s", value / GB);
    if (value > 0)
        return value;
    result_fail(r, "%s: no byte was transferred during the test", what);
    return 0;
}

static void judge(struct result *r, double value, double floor, const char *what)
{
    result_expected(r, ">= %.1f GB/s", floor / GB);
    if (value >= floor)
        result_pass(r, "%s: %.2f GB/s", what, value / GB);
    else
        result_warn(r, "%s: only %.2f GB/s", what, value / GB);
}

static void check_shm(const struct view *v, struct result *r)
{
    double value = rate(v, r, "active-shm", "a shared memory transfer");
    if (value > 0)
        judge(r, value, 2 * GB, "from one process to another through shared memory");
}

static void check_memory(const struct view *v, struct result *r)
{
    double value = rate(v, r, "active-memory", "a memory test");
    if (value > 0)
        judge(r, value, 4 * GB,
              "memory bandwidth of all usable processors together (STREAM triad)");
}

static void check_loopback(const struct view *v, struct result *r)
{
    double value = rate(v, r, "active-loopback", "a transfer over loopback");
    if (value > 0)
        judge(r, value, 0.5 * GB, "TCP over loopback");
}

static void check_storage(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "active-storage");
    if (a->state == ANSWER_FAILED) {
        result_skip(r, "no file of 16 MiB or more to read; --data DIR names the data set");
        return;
    }
    double value = rate(v, r, "active-storage", "reading the data set");
    if (value > 0)
        judge(r, value, 0.05 * GB, answer_str(a, "file", "the data set"));
}

#define STREAM "https://www.cs.virginia.edu/stream/"

static const struct check rows[] = {
    {.id = "shm-bandwidth",
     .code = "HVD9501",
     .group = GROUP_ACTIVE,
     .level = 2,
     .probes = {"active-shm"},
     .run = check_shm,
     .title = "shared memory bandwidth",
     .why = "Ranks of one machine exchange gradients through shared memory.",
     .fix = {"docker run with a higher --cpus or without it; --ipc=host", "a larger CPU limit",
             "stop other load (top); set governor performance; use all memory channels"},
     .action = ACTION_HOST,
     .explain = "One process copies 4 MiB slots into shared memory, another copies them out, for a "
                "second. Below 2 GB/s warns (own threshold).",
     .refs = {STREAM}},
    {.id = "memory-bandwidth",
     .code = "HVD9502",
     .group = GROUP_ACTIVE,
     .level = 2,
     .probes = {"active-memory"},
     .run = check_memory,
     .title = "memory bandwidth",
     .why =
         "Reductions on the host, the optimizer and data loading are limited by memory bandwidth.",
     .fix = {"docker run without --cpuset-mems, or with the right node",
             "a larger CPU limit; static CPU manager policy for whole cores",
             "stop other load (top); add missing memory modules (dmidecode -t memory); lift power "
             "caps"},
     .action = ACTION_HOST,
     .explain = "STREAM's triad, one process for each usable processor, two seconds, arrays of 32 "
                "MiB. Below 4 GB/s warns (own threshold); compare machines of one kind with "
                "hvd-doctor diff.",
     .refs = {STREAM}},
    {.id = "loopback-bandwidth",
     .code = "HVD9503",
     .group = GROUP_ACTIVE,
     .level = 2,
     .probes = {"active-loopback"},
     .run = check_loopback,
     .title = "TCP over loopback",
     .why = "A machine that is slow over loopback (a busy processor, a packet filter on every "
            "packet) is slow to other machines, too.",
     .fix = {"docker run --network=host",
             "hostNetwork: true shows whether the pod network is the cause",
             "iptables -L -v for rules that all packets pass; top for a busy processor"},
     .action = ACTION_NETWORK,
     .explain = "One TCP connection over 127.0.0.1 for a second. Below 0.5 GB/s warns (own "
                "threshold).",
     .refs = {"https://man7.org/linux/man-pages/man7/tcp.7.html"}},
    {.id = "storage-read",
     .code = "HVD9504",
     .group = GROUP_ACTIVE,
     .level = 2,
     .probes = {"active-storage"},
     .run = check_storage,
     .title = "reading the data set",
     .why = "Every rank waits for the slowest reader in each step.",
     .fix = {"-v a local disk into the container; copy the data set to it first",
             "a volume of a faster storage class, or an init container that copies the data set to "
             "an emptyDir",
             "copy the data set to a local disk; fewer, larger files"},
     .action = ACTION_HOST,
     .explain = "Reads the largest file of --data DIR (16 MiB at least) for two seconds, after "
                "asking the kernel to drop its cached pages. Below 50 MB/s warns (own threshold).",
     .refs = {"https://man7.org/linux/man-pages/man2/posix_fadvise.2.html"}},
};

const struct check_table checks_active = {rows, sizeof(rows) / sizeof(rows[0])};
