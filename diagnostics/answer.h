/* SPDX-License-Identifier: Apache-2.0
 *
 * answer: what a probe found, as text lines "key value": keys without blanks, values
 * without newlines (they are escaped: \n, \\). Lists number their keys: nccl.0.path, nccl.1.path.
 *
 * Probes write answers in a child process, machine keeps them, checks read them. A captured machine
 * holds them as files. Readers treat an answer as untrusted bytes: a line that does not parse is
 * dropped. One thread.
 */
#ifndef HVD_DIAGNOSTICS_ANSWER_H
#define HVD_DIAGNOSTICS_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"

#define ANSWER_MAX (256u << 10)

enum answer_state {
    ANSWER_OK,
    ANSWER_TIMEOUT, /* the probe did not end in time; detail: the limit in ms */
    ANSWER_CRASHED, /* detail: the signal */
    ANSWER_FAILED,  /* detail: errno */
    ANSWER_ABSENT,  /* not run, or not in the captured machine */
};

struct answer {
    enum answer_state state;
    int detail;
    char *text; /* "key\0value\0..." in the order written; owned */
    size_t len;
    uint32_t ms; /* how long the probe ran */
};

/* ---- writing, in the probe ---- */
void answer_put(struct buf *out, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for the key "list.<i>.key". */
void answer_put_at(struct buf *out, const char *list, int i, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- reading ---- */

/* Parses the lines of text. *ret is empty before the call. A first line "state timeout 10000",
 * as captured machines have it, records that the probe did not finish within 10000 ms. */
void answer_parse(struct answer *ret, const char *text, size_t len);
/* Writes the lines back, the state line first: the form of a captured machine. */
void answer_write(const struct answer *a, struct buf *out);
void answer_fini(struct answer *a);

/* The value of key, def where it is absent. The string is the answer's. A NULL answer has no
 * keys. */
const char *answer_str(const struct answer *a, const char *key, const char *def);
int64_t answer_int(const struct answer *a, const char *key, int64_t def);
double answer_num(const struct answer *a, const char *key, double def);
bool answer_has(const struct answer *a, const char *key);

/* How many entries a list has: 0, 1, ... while entry i has at least one key. */
int answer_count(const struct answer *a, const char *list);
const char *answer_str_at(const struct answer *a, const char *list, int i, const char *key,
                          const char *def);
int64_t answer_int_at(const struct answer *a, const char *list, int i, const char *key,
                      int64_t def);

/* "ok", "timed out after 10000 ms", "crashed with SIGSEGV", "failed: Operation not permitted". */
void answer_describe(const struct answer *a, char *dst, size_t size);

#endif
