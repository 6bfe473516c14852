/* SPDX-License-Identifier: Apache-2.0
 *
 * match_scan: finds any of some hundred words in a stream of bytes, case ignored, controls taken
 * for blanks (but for the ends of lines), one table look-up a byte: an Aho-Corasick automaton over
 * classes of bytes.
 *
 * The automaton is constant once made: any thread. The state of a stream is the caller's.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_SCAN_H
#define HVD_DIAGNOSTICS_MATCH_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct scan_word {
    const char *text; /* lower case, not empty */
    unsigned id;      /* several words may have the same */
};

struct scan;

int scan_create(const struct scan_word *words, size_t n, struct scan **ret, struct err *err);
void scan_destroy(struct scan *s);

/* Runs on from *state (0 at first) and stops behind the first byte that ends a word: returns where,
 * NULL when there is none before end. *state is moved along. */
const uint8_t *scan_next(const struct scan *s, uint32_t *state, const uint8_t *p,
                         const uint8_t *end);

/* Sets bit id in bits for each word that ends in this state. */
void scan_ids(const struct scan *s, uint32_t state, uint64_t *bits);

size_t scan_bytes(const struct scan *s); /* of memory */

#endif
