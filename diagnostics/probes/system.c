/* SPDX-License-Identifier: Apache-2.0
 *
 * system: what the kernel reports only by system calls: its version, the clock, random numbers, a
 * hypervisor. Also whether the machine swaps right now, and ACS on PCI bridges.
 *
 * Each runs in a child of its own. Answers: "system" release machine virt clock.{state,
 * unsync,offset_us,maxerror_us,errno} random; "vmstat" swap_in swap_out ms; "pci-acs" bridges on
 * unreadable first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "diagnostics/probe.h"

/* The hypervisor's signature from cpuid; "" on bare metal and where the processor has none. */
static void hypervisor(char dst[13])
{
    memset(dst, 0, 13);
#if defined(__x86_64__) || defined(__i386__)
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 31))
        return;
    __cpuid(0x40000000, a, b, c, d);
    memcpy(dst, &b, 4);
    memcpy(dst + 4, &c, 4);
    memcpy(dst + 8, &d, 4);
    for (int i = 0; i < 12; i++)
        if (dst[i] && (dst[i] < ' ' || dst[i] > '~'))
            dst[i] = '?';
    if (!dst[0])
        memcpy(dst, "unnamed", 8);
#endif
}

static int run_system(struct buf *out, const struct machine *m, const struct setting *s)
{
    struct utsname name;
    struct timex tx = {.modes = 0};
    char virt[13];
    unsigned char byte;
    if (uname(&name) == 0) {
        answer_put(out, "release", "%s", name.release);
        answer_put(out, "machine", "%s", name.machine);
    }
    hypervisor(virt);
    answer_put(out, "virt", "%s", virt[0] ? virt : "none");
    int state = adjtimex(&tx);
    if (state < 0) {
        answer_put(out, "clock.errno", "%d", errno);
    } else {
        answer_put(out, "clock.state", "%d", state);
        answer_put(out, "clock.unsync", "%d", tx.status & STA_UNSYNC ? 1 : 0);
        answer_put(out, "clock.offset_us", "%ld",
                   tx.status & STA_NANO ? tx.offset / 1000 : tx.offset);
        answer_put(out, "clock.maxerror_us", "%ld", tx.maxerror);
    }
    ssize_t n = getrandom(&byte, 1, GRND_NONBLOCK);
    answer_put(out, "random", "%s", n == 1 ? "ready" : errno == EAGAIN ? "blocks" : "unknown");
    return 0;
}

struct vmstat {
    int64_t in, out;
};

static bool look_vmstat(const struct machine *m, struct vmstat *ret)
{
    return machine_field_int(m, "proc/vmstat", "pswpin", &ret->in) == 0 &&
           machine_field_int(m, "proc/vmstat", "pswpout", &ret->out) == 0;
}

static int run_vmstat(struct buf *out, const struct machine *m, const struct setting *s)
{
    const struct timespec pause = {0, 200 * 1000 * 1000};
    struct vmstat before, after;
    uint64_t start = clock_ns();
    if (!look_vmstat(m, &before))
        return -ENOENT;
    nanosleep(&pause, NULL);
    if (!look_vmstat(m, &after))
        return -ENOENT;
    answer_put(out, "ms", "%d", (int)((clock_ns() - start) / CLOCK_MS));
    answer_put(out, "swap_in", "%lld", (long long)(after.in - before.in));
    answer_put(out, "swap_out", "%lld", (long long)(after.out - before.out));
    return 0;
}

#define PCI_EXTENDED 0x100 /* where extended capabilities begin, 4 bytes a header */
#define PCI_CAPS_MAX 960
#define PCI_CAP_ACS  0x0d
#define ACS_CONTROL  6
/* With request redirect and completion redirect a bridge sends traffic between its devices up to
 * the root complex. */
#define ACS_REDIRECT 0x0c

static bool config_bytes(int fd, off_t at, unsigned char *dst, size_t n)
{
    return pread(fd, dst, n, at) == (ssize_t)n;
}

/* Returns 1 if ACS redirects, 0 if not, -1 if the extended space cannot be read. Reads single
 * words: a whole configuration space takes milliseconds. */
static int acs_of(int fd)
{
    unsigned char b[4], control[2];
    struct stat st;
    off_t at = PCI_EXTENDED;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size <= PCI_EXTENDED)
        return 0; /* an old bridge without extended space has no ACS */
    for (int hops = 0; at >= PCI_EXTENDED && hops < PCI_CAPS_MAX; hops++) {
        if (!config_bytes(fd, at, b, sizeof(b)))
            return hops ? 0 : -1;
        if (b[0] == 0xff && b[1] == 0xff)
            return -1; /* the device is asleep (power state D3) */
        if ((b[0] | b[1] << 8) == PCI_CAP_ACS)
            return config_bytes(fd, at + ACS_CONTROL, control, sizeof(control))
                       ? (control[0] & ACS_REDIRECT) != 0
                       : -1;
        at = (b[2] >> 4 | b[3] << 4) & 0xffc;
    }
    return 0;
}

static int run_acs(struct buf *out, const struct machine *m, const struct setting *s)
{
    auto_free char **names = NULL;
    int bridges = 0, on = 0, unreadable = 0;
    int rc = machine_list(m, "sys/bus/pci/devices", &names, NULL);
    for (size_t i = 0; rc == 0 && names[i]; i++) {
        char class[32], path[512];
        if (machine_line(m, class, sizeof(class), "sys/bus/pci/devices/%s/class", names[i]) < 0 ||
            strncmp(class, "0x0604", 6) != 0)
            continue;
        bridges++;
        snprintf(path, sizeof(path), "sys/bus/pci/devices/%s/config", names[i]);
        auto_close int fd = openat(m->root, path, O_RDONLY | O_CLOEXEC);
        int acs = fd < 0 ? -1 : acs_of(fd);
        if (acs > 0 && on++ == 0)
            answer_put(out, "first", "%s", names[i]);
        unreadable += acs < 0;
    }
    answer_put(out, "bridges", "%d", bridges);
    answer_put(out, "on", "%d", on);
    answer_put(out, "unreadable", "%d", unreadable);
    return rc;
}

static const struct probe probes[] = {
    {.name = "system", .level = 1, .run = run_system},
    {.name = "vmstat", .level = 1, .run = run_vmstat},
    {.name = "pci-acs", .level = 1, .run = run_acs},
};

const struct probe_table probes_system = {probes, sizeof(probes) / sizeof(probes[0])};
