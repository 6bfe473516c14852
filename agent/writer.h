/* SPDX-License-Identifier: Apache-2.0
 *
 * writer: writes files on its own thread, because a write may wait for a disk and the owner's loop
 * must not. Bytes wait in memory; the owner checks writer_pending() and stops queueing when it is
 * too much.
 *
 * Call all functions from the owner's thread.
 */
#ifndef HVD_AGENT_WRITER_H
#define HVD_AGENT_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct writer;

/* Starts the thread. 0 or -errno. */
int writer_open(struct writer **ret);

/* Ends the thread. false: the thread waits in the kernel for a disk; thread, descriptors and memory
 * are leaked, because this process ends soon. NULL is fine. */
bool writer_close(struct writer *w);

/* Adds a file; returns its index or -ENOMEM. own: writer_close() closes the descriptor. */
int writer_add(struct writer *w, int fd, bool own);

/* Queues bytes for a file. -ENOMEM: nothing was queued. Ignored for a file that has failed. */
int writer_put(struct writer *w, int file, const void *data, size_t n);

/* errno of the first write that failed, 0: none has; *ret_file: its file, -1. A file that failed is
 * not written any more. */
int writer_failed(struct writer *w, int *ret_file);

/* Bytes of all files that are not written yet. *ret_moved: clock_ns() when bytes were last written,
 * or when bytes began to wait. */
size_t writer_pending(struct writer *w, uint64_t *ret_moved);

/* The first file with bytes that are not written yet; -1: none. */
int writer_first_pending(struct writer *w);

/* Readable after bytes were written or a write failed; the owner reads it to reset it. */
int writer_fd(const struct writer *w);

#endif
