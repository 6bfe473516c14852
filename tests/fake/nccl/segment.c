/* SPDX-License-Identifier: Apache-2.0
 *
 * segment: a memfd. Other ranks open it through the creator's /proc/PID/fd, so it has no name and
 * leaves nothing behind. See fake.h.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "tests/fake/nccl/fake.h"

#define MAGIC 0x6876644e43434c31ULL

int segment_make(struct where *ret)
{
    struct where w = {.magic = MAGIC, .pid = getpid()};
    w.fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (w.fd < 0 || getrandom(&w.nonce, sizeof(w.nonce), 0) != sizeof(w.nonce) ||
        ftruncate(w.fd, sizeof(struct segment)) != 0 ||
        pwrite(w.fd, &w.nonce, sizeof(w.nonce), 0) != sizeof(w.nonce)) {
        if (w.fd >= 0)
            close(w.fd);
        return NCCL_ABI_SYSTEM_ERROR;
    }
    *ret = w;
    return NCCL_ABI_SUCCESS;
}

struct segment *segment_open(const struct where *where)
{
    char path[64];
    if (where->magic != MAGIC)
        return NULL;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", where->pid, where->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct segment *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (s == MAP_FAILED)
        return NULL;
    if (s->nonce == where->nonce)
        return s;
    munmap(s, sizeof(*s));
    return NULL;
}

void segment_close(struct segment *segment)
{
    if (segment)
        munmap(segment, sizeof(*segment));
}

void segment_unmake(const struct where *where)
{
    if (where->magic == MAGIC && where->pid == getpid())
        close(where->fd);
}
