/* SPDX-License-Identifier: Apache-2.0
 *
 * facts: properties of a worker, to be compared with those of the others. See workers.h.
 */
#include <arpa/inet.h>
#include <gnu/libc-version.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/include/hvd.h"
#include "diagnostics/probe.h"
#include "diagnostics/workers/workers.h"

#define ENV_MAX   4096
#define ENV_LINES 256

/* Selects variables that change a job's behaviour; variables that differ by design, and secrets,
 * are left out. */
static bool counts(const char *variable)
{
    static const char *const prefixes[] = {"NCCL_",  "OMPI_MCA_", "PMIX_MCA_", "UCX_", "FI_",
                                           "OMP_",   "MKL_",      "CUDA_",     "HVD_", "HOROVOD_",
                                           "TORCH_", "PYTORCH_",  "LD_PRELOAD"};
    static const char *const own[] = {"RANK",      "LOCAL_",     "CROSS_", "AGENT", "HOSTNAME",
                                      "JOB",       "KEY",        "IFACE",  "SIZE",  "RENDEZVOUS",
                                      "GLOO_ADDR", "CONTROLLER", "TOKEN"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(variable, prefixes[i], n) != 0)
            continue;
        bool ours = strncmp(variable, "HVD_", 4) == 0 || strncmp(variable, "HOROVOD_", 8) == 0;
        for (size_t k = 0; ours && k < sizeof(own) / sizeof(own[0]); k++)
            if (strncmp(variable + n, own[k], strlen(own[k])) == 0)
                return false;
        return true;
    }
    return false;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Writes the variables sorted: their order in the environment has no meaning. */
static void put_env(const struct machine *m, int rank, struct buf *out)
{
    const char *lines[ENV_LINES], *one;
    char text[ENV_MAX] = "";
    size_t n = 0, at = 0;
    for (size_t i = 0; n < ENV_LINES && (one = machine_env_at(m, i)); i++)
        if (counts(one))
            lines[n++] = one;
    qsort(lines, n, sizeof(*lines), compare_lines);
    for (size_t i = 0; i < n; i++)
        if (at + strlen(lines[i]) + 2 < sizeof(text))
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s\n", lines[i]);
    answer_put_at(out, "worker", rank, "env", "%s", text);
}

static void put_addresses(int rank, struct buf *out)
{
    struct ifaddrs *list = NULL;
    char key[32], ip[64];
    int n = 0;
    snprintf(key, sizeof(key), "address_%d", rank);
    if (getifaddrs(&list) < 0)
        list = NULL;
    for (struct ifaddrs *a = list; a && n < WORKERS_IPS; a = a->ifa_next) {
        const void *bytes = NULL;
        if (!a->ifa_addr || (a->ifa_flags & IFF_LOOPBACK) || !(a->ifa_flags & IFF_RUNNING))
            continue;
        if (a->ifa_addr->sa_family == AF_INET)
            bytes = &((struct sockaddr_in *)a->ifa_addr)->sin_addr;
        if (a->ifa_addr->sa_family == AF_INET6) {
            bytes = &((struct sockaddr_in6 *)a->ifa_addr)->sin6_addr;
            if (IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)bytes))
                bytes = NULL; /* a link-local address needs a scope, which another machine cannot
                                 know */
        }
        if (!bytes || !inet_ntop(a->ifa_addr->sa_family, bytes, ip, sizeof(ip)))
            continue;
        answer_put_at(out, key, n, "ip", "%s", ip);
        answer_put_at(out, key, n, "if", "%s", a->ifa_name);
        n++;
    }
    answer_put_at(out, "worker", rank, "nics", "%d", n);
    freeifaddrs(list);
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ..." */
static void put_driver(const struct machine *m, int rank, struct buf *out)
{
    char line[256], *save = NULL;
    if (machine_line(m, line, sizeof(line), "proc/driver/nvidia/version") < 0)
        return;
    for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (strchr("0123456789", word[0]) && strchr(word, '.')) {
            answer_put_at(out, "worker", rank, "driver", "%s", word);
            return;
        }
    }
}

static void put_gpus(const struct machine *m, int rank, struct buf *out)
{
    auto_free char **names = NULL;
    char text[1024] = "", model[128];
    size_t n = 0, at = 0;
    if (machine_list(m, "proc/driver/nvidia/gpus", &names, &n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        char path[128];
        snprintf(path, sizeof(path), "proc/driver/nvidia/gpus/%.60s/information", names[i]);
        if (machine_field(m, path, "Model", model, sizeof(model)) == 0 && at < sizeof(text))
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at ? ", " : "", model);
    }
    answer_put_at(out, "worker", rank, "gpus", "%s", text);
}

static int put_libraries(struct machine *m, const struct setting *s, int rank, struct buf *out,
                         struct err *err)
{
    static const char *const names[] = {"nccl", "mpi"};
    int rc = probe_ask(m, names, 2, s, err);
    for (int i = 0; i < 2 && rc == 0; i++) {
        const char *version = answer_str(machine_answer(m, names[i]), "version", NULL);
        if (version)
            answer_put_at(out, "worker", rank, names[i], "%s", version);
    }
    return rc;
}

int workers_facts(struct machine *m, const struct setting *s, int rank, int port, struct buf *out,
                  struct err *err)
{
    struct utsname un;
    cpu_set_t set;
    char host[256] = "?";
    if (gethostname(host, sizeof(host) - 1) == 0)
        answer_put_at(out, "worker", rank, "host", "%s", host);
    if (uname(&un) == 0) {
        answer_put_at(out, "worker", rank, "arch", "%s", un.machine);
        answer_put_at(out, "worker", rank, "kernel", "%s", un.release);
    }
    answer_put_at(out, "worker", rank, "pid", "%d", (int)getpid());
    answer_put_at(out, "worker", rank, "port", "%d", port);
    answer_put_at(out, "worker", rank, "hvd", "%s", hvd_version());
    answer_put_at(out, "worker", rank, "glibc", "%s", gnu_get_libc_version());
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        answer_put_at(out, "worker", rank, "cpus", "%d", CPU_COUNT(&set));
    put_driver(m, rank, out);
    put_gpus(m, rank, out);
    put_env(m, rank, out);
    put_addresses(rank, out);
    return put_libraries(m, s, rank, out, err);
}

/* ---- a fixed piece of work ------------------------------------------------------------------- */

#define TRIES    5
#define STEPS    8000000
#define COPY_LEN (16u << 20)

static double work(void)
{
    double x = 1;
    for (int i = 0; i < STEPS; i++)
        x = x * 0.999999 + 0.000001;
    return x;
}

static double ms_since(uint64_t start)
{
    return (double)(clock_ns() - start) / CLOCK_MS;
}

static double median(double v[TRIES])
{
    for (int i = 1; i < TRIES; i++)
        for (int k = i; k > 0 && v[k] < v[k - 1]; k--) {
            double t = v[k];
            v[k] = v[k - 1];
            v[k - 1] = t;
        }
    return v[TRIES / 2];
}

void workers_compute(int rank, struct buf *out)
{
    double compute[TRIES], memory[TRIES];
    auto_free uint8_t *bytes = calloc(2, COPY_LEN);
    volatile double sink = 0;
    for (int i = 0; i < TRIES; i++) {
        uint64_t start = clock_ns();
        sink = sink + work();
        compute[i] = ms_since(start);
        start = clock_ns();
        if (bytes)
            memcpy(bytes + (i & 1 ? COPY_LEN : 0), bytes + (i & 1 ? 0 : COPY_LEN), COPY_LEN);
        memory[i] = ms_since(start);
    }
    answer_put_at(out, "worker", rank, "compute_ms", "%.3f", median(compute));
    answer_put_at(out, "worker", rank, "memory_ms", "%.3f", median(memory));
}
