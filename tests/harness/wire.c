/* SPDX-License-Identifier: Apache-2.0
 *
 * wire: see wire.h.
 */
#include "tests/harness/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"

#define HOSTS   16
#define PACKETS 4096 /* under way; more are lost, as in a switch */
#define BYTES   1600 /* of a packet; the devices' MTU is 1500 */
#define IPV4_TO 16   /* offset of the destination's address */
#define SLACK   1000 /* ns */

struct packet {
    uint64_t due;
    ssize_t size;
    unsigned char data[BYTES];
};

struct wire {
    struct pollfd ports[HOSTS];
    int hosts;
    uint64_t delay_ns;
    /* The oldest is at first % PACKETS; all have the same delay, so this is the order of due. */
    struct packet packets[PACKETS];
    size_t first, end;
};

static int open_port(const char *prefix, int host)
{
    char path[64];
    snprintf(path, sizeof(path), "/run/netns/%s%d", prefix, host);
    auto_close int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) < 0)
        return -errno;
    struct ifreq request = {.ifr_name = "eth0", .ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
        return fd;
    int rc = -errno;
    if (fd >= 0)
        close(fd);
    return rc;
}

static void take_all(struct wire *w, int fd)
{
    while (w->end - w->first < PACKETS) {
        struct packet *p = &w->packets[w->end % PACKETS];
        p->size = read(fd, p->data, sizeof(p->data));
        if (p->size <= 0)
            return;
        p->due = clock_ns() + w->delay_ns;
        w->end++;
    }
    static unsigned char lost[BYTES];
    while (read(fd, lost, sizeof(lost)) > 0)
        ;
}

static void give(const struct wire *w, const struct packet *p)
{
    int host = p->data[IPV4_TO + 3] - 1;
    bool is_ipv4 = p->size > IPV4_TO + 3 && p->data[0] >> 4 == 4;
    /* A failed write loses the packet. */
    if (is_ipv4 && host >= 0 && host < w->hosts &&
        write(w->ports[host].fd, p->data, (size_t)p->size) < 0)
        return;
}

static void pass_packets(struct wire *w)
{
    for (;;) {
        uint64_t now = clock_ns();
        for (; w->first != w->end && w->packets[w->first % PACKETS].due <= now; w->first++)
            give(w, &w->packets[w->first % PACKETS]);
        struct timespec wait = {0};
        if (w->first != w->end)
            wait.tv_nsec = (long)(w->packets[w->first % PACKETS].due - now);
        ppoll(w->ports, (nfds_t)w->hosts, w->first != w->end ? &wait : NULL, NULL);
        for (int h = 0; h < w->hosts; h++) {
            if (w->ports[h].revents)
                take_all(w, w->ports[h].fd);
        }
    }
}

static void wire_main(const char *prefix, int hosts, unsigned delay_us, int ready)
{
    struct wire *w = calloc(1, sizeof(*w));
    const struct sched_param first = {.sched_priority = 1};
    int rc = w && hosts <= HOSTS ? 0 : -ENOMEM;
    for (int h = 0; rc >= 0 && h < hosts; h++) {
        rc = open_port(prefix, h);
        w->ports[h] = (struct pollfd){.fd = rc, .events = POLLIN};
    }
    rc = rc < 0 ? rc : 0;
    if (write(ready, &rc, sizeof(rc)) != sizeof(rc) || rc < 0)
        _exit(1);
    close(ready);
    w->hosts = hosts;
    w->delay_ns = delay_us * 1000ULL;
    /* The delay must not grow while the ranks keep the processors busy. */
    sched_setscheduler(0, SCHED_FIFO, &first);
    prctl(PR_SET_TIMERSLACK, SLACK);
    pass_packets(w);
}

pid_t wire_start(const char *prefix, int hosts, unsigned delay_us)
{
    int ready[2], rc = -EIO;
    pid_t parent = getpid();
    if (pipe2(ready, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        if (getppid() == parent)
            wire_main(prefix, hosts, delay_us, ready[1]);
        _exit(1);
    }
    close(ready[1]);
    if (pid > 0 && read(ready[0], &rc, sizeof(rc)) != sizeof(rc))
        rc = -EIO;
    close(ready[0]);
    if (pid > 0 && rc < 0)
        wire_end(pid);
    return pid < 0 ? -errno : rc < 0 ? rc : pid;
}

void wire_end(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
