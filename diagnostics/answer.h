/* SPDX-License-Identifier: Apache-2.0
 *
 * answer: what a probe found out, as text: a line "key value" each, keys without blanks, values
 * without newlines (they are escaped: \n, \\). Lists number their keys: nccl.0.path, nccl.1.path.
 *
 * Probes write answers in a child process, machine keeps them, checks read them. A captured machine
 * holds them as files. Foreign bytes to whoever reads them: a line that does not parse is dropped.
 * One thread.
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
    ANSWER_TIMEOUT, /* the probe did not come back; detail: after how many ms */
    ANSWER_CRASHED, /* detail: the signal */
    ANSWER_FAILED,  /* detail: errno */
    ANSWER_ABSENT,  /* not asked, or not in the captured machine */
};

struct answer {
    enum answer_state state;
    int detail;
    char *text; /* "key\0value\0..." in the order written; owned */
    size_t len;
    uint32_t ms; /* how long it took */
};

/* ---- writing, in the probe ---- */
void answer_put(struct buf *out, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for "list.<i>.key". */
void answer_put_at(struct buf *out, const char *list, int i, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- reading ---- */

/* Takes the lines; *ret is empty before. A state line "state timeout 10000" at the top (captured
 * machines) is understood. */
void answer_parse(struct answer *ret, const char *text, size_t len);
/* The lines again, state line first: what a captured machine holds. */
void answer_write(const struct answer *a, struct buf *out);
void answer_fini(struct answer *a);

/* The value; def where it is absent. Owned by the answer. A NULL answer has nothing. */
const char *answer_str(const struct answer *a, const char *key, const char *def);
int64_t answer_int(const struct answer *a, const char *key, int64_t def);
double answer_num(const struct answer *a, const char *key, double def);
bool answer_has(const struct answer *a, const char *key);

/* How many entries a list has (0, 1, ... as long as any key of entry i is there), and one of them.
 */
int answer_count(const struct answer *a, const char *list);
const char *answer_str_at(const struct answer *a, const char *list, int i, const char *key,
                          const char *def);
int64_t answer_int_at(const struct answer *a, const char *list, int i, const char *key,
                      int64_t def);

/* "ok", "timed out after 10000 ms", "crashed with SIGSEGV", "failed: Operation not permitted". */
void answer_describe(const struct answer *a, char *dst, size_t size);

#endif
