/* SPDX-License-Identifier: Apache-2.0
 *
 * direct: reads the memory of another process of this host, process_vm_readv(2), so that a large
 * message is copied once. Whether that is allowed depends on user, namespaces, seccomp and Yama
 * (ptrace(2)); and a process id means another process in another pid namespace. So each process has
 * a mark, 16 random bytes in its memory, and tells its peers the bytes and where they are.
 */
#ifndef HVD_P2P_DIRECT_H
#define HVD_P2P_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIRECT_MARK 16

struct direct_process {
    uint64_t pid;
    uint64_t address; /* of the mark */
    uint8_t mark[DIRECT_MARK];
};

/* This process; mark: memory that stays as it is. false: there is no random number. */
bool direct_own(uint8_t mark[DIRECT_MARK], struct direct_process *ret);

/* Takes the mark away: peers take nothing for valid that they read from here on. */
void direct_end(uint8_t mark[DIRECT_MARK]);

/* Whether the process's memory can be read: the mark is there. After a direct_read(): what it has
 * read is what the process meant. */
bool direct_works(const struct direct_process *process);

/* Copies from the other process. 0 or -errno. */
int direct_read(uint64_t pid, void *dst, uint64_t src, size_t bytes);

#endif
