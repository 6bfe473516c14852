/* SPDX-License-Identifier: Apache-2.0
 *
 * writer: writes to files on a thread of its own, because a write to a file waits for its disk and
 * the owner's loop must not. What waits to be written is in memory; the owner looks at
 * writer_pending() and puts no more where that is too much.
 *
 * Every function but the thread's own is called on the owner's thread.
 */
#ifndef HVD_AGENT_WRITER_H
#define HVD_AGENT_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct writer;

/* 0, -errno. */
int writer_open(struct writer **ret);

/* Ends the thread. false: it waits in the kernel for a disk; thread, descriptors and memory are
 * then left as they are, because this process ends soon. NULL is fine. */
bool writer_close(struct writer *w);

/* One more file: its number, -ENOMEM. own: the descriptor is closed by writer_close(). */
int writer_add(struct writer *w, int fd, bool own);

/* Queues bytes for a file; -ENOMEM: they are not. Nothing for a file that has failed. */
int writer_put(struct writer *w, int file, const void *data, size_t n);

/* errno of the write that failed, 0: none has. Nothing is written to that file any more. */
int writer_failed(struct writer *w, int file);

/* Bytes that are not written yet: of one file, or of all (-1). *ret_moved: the clock when the last
 * bytes were written, or when there began to be some to write. */
size_t writer_pending(struct writer *w, int file, uint64_t *ret_moved);

/* Readable after something was written or has failed; reading is the owner's. */
int writer_fd(const struct writer *w);

#endif
