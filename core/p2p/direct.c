/* SPDX-License-Identifier: Apache-2.0
 *
 * direct: see direct.h.
 */
#include "core/p2p/direct.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

bool direct_own(uint8_t mark[DIRECT_MARK], struct direct_process *ret)
{
    if (getrandom(mark, DIRECT_MARK, 0) != DIRECT_MARK)
        return false;
    *ret = (struct direct_process){.pid = (uint64_t)getpid(), .address = (uintptr_t)mark};
    memcpy(ret->mark, mark, DIRECT_MARK);
    return true;
}

void direct_end(uint8_t mark[DIRECT_MARK])
{
    memset(mark, 0, DIRECT_MARK);
    atomic_thread_fence(memory_order_seq_cst);
}

bool direct_works(const struct direct_process *process)
{
    uint8_t mark[DIRECT_MARK];
    return process->pid <= INT32_MAX &&
           direct_read(process->pid, mark, process->address, sizeof(mark)) == 0 &&
           memcmp(mark, process->mark, sizeof(mark)) == 0;
}

int direct_read(uint64_t pid, void *dst, uint64_t src, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        struct iovec here = {(uint8_t *)dst + done, bytes - done};
        struct iovec there = {(void *)(uintptr_t)(src + done), bytes - done};
        ssize_t got = process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EFAULT;
        done += (size_t)got;
    }
    return 0;
}
