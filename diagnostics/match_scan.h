/* SPDX-License-Identifier: Apache-2.0
 *
 * match_scan: finds any of some hundred words in a stream of bytes with an Aho-Corasick automaton:
 * one table look-up per byte. Case is ignored; control characters except line ends count as blanks.
 *
 * The automaton does not change after its creation: any thread. The caller keeps the state of a
 * stream.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_SCAN_H
#define HVD_DIAGNOSTICS_MATCH_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct scan_word {
    const char *text; /* lower case, not empty */
    unsigned id;      /* several words may have the same id */
};

struct scan;

int scan_create(const struct scan_word *words, size_t n, struct scan **ret, struct err *err);
void scan_destroy(struct scan *s);

/* Scans from *state (0 at the start of a stream) and stops after the first byte that ends a
 * word. Returns the position behind that byte, NULL when no word ends before end. Updates
 * *state. */
const uint8_t *scan_next(const struct scan *s, uint32_t *state, const uint8_t *p,
                         const uint8_t *end);

/* Sets bit id in bits for each word that ends in this state. */
void scan_ids(const struct scan *s, uint32_t state, uint64_t *bits);

size_t scan_bytes(const struct scan *s); /* memory in bytes */

#endif
