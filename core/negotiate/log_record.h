/* SPDX-License-Identifier: Apache-2.0
 *
 * log_record: the records of a DOWN_LOG message, which decide.c writes and follow.c reads.
 */
#ifndef HVD_NEGOTIATE_LOG_RECORD_H
#define HVD_NEGOTIATE_LOG_RECORD_H

enum log_record {
    /* u8 bound, u32 tensors; each: u8 0 and u64 id, or u8 1, str name, u64 id (0: not cached), and
     * of an allgather i64 dim0 [size]. */
    LOG_BATCH = 1,
    LOG_EVICT, /* u64 id */
    LOG_FAIL,  /* str name, i32 negative errno, str text */
    LOG_ANEW,  /* a new generation: every rank announces again what is not in a batch yet */
    LOG_END,   /* no batch comes any more: a rank leaves (end.c) */
};

#endif
