/* SPDX-License-Identifier: Apache-2.0
 *
 * match_scan: see match_scan.h.
 *
 * States in which a word ends have the highest numbers, so that the inner loop needs one
 * comparison. A row of the table has 2^shift columns: one for each byte that occurs in a word, and
 * column 0 for all others.
 */
#include "diagnostics/match_scan.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"

#define STATES_MAX 60000

struct ending {
    uint32_t next; /* index + 1 of the next word that ends in the same state; 0: none */
    unsigned id;
};

struct scan {
    uint16_t *table; /* [nstates << shift] */
    uint8_t class_of[256];
    unsigned shift;
    uint32_t nstates;
    uint32_t accepting; /* a word ends in this state and in all above */
    uint32_t *endings;  /* [nstates] index + 1 of the first entry of list; 0: none */
    uint16_t *suffix;   /* [nstates] the state of the longest proper suffix */
    struct ending *list;
    size_t nlist;
};

void scan_destroy(struct scan *s)
{
    if (!s)
        return;
    free(s->table);
    free(s->endings);
    free(s->suffix);
    free(s->list);
    free(s);
}

size_t scan_bytes(const struct scan *s)
{
    return ((size_t)s->nstates << s->shift) * sizeof(*s->table) +
           s->nstates * (sizeof(*s->endings) + sizeof(*s->suffix)) + s->nlist * sizeof(*s->list);
}

static void classify(struct scan *s, const struct scan_word *words, size_t n)
{
    unsigned classes = 1;
    for (size_t i = 0; i < n; i++)
        for (const uint8_t *p = (const uint8_t *)words[i].text; *p; p++)
            if (!s->class_of[*p])
                s->class_of[*p] = (uint8_t)classes++;
    for (int c = 'A'; c <= 'Z'; c++)
        s->class_of[c] = s->class_of[tolower(c)];
    for (int c = 0; c < 0x20; c++)
        if (c != '\n' && c != '\r' && !s->class_of[c])
            s->class_of[c] = s->class_of[' '];
    s->class_of[0x7f] = s->class_of[' '];
    while (1u << s->shift < classes)
        s->shift++;
}

/* Builds the trie of the words. A missing edge is 0. */
static void grow(struct scan *s, const struct scan_word *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t state = 0;
        for (const uint8_t *p = (const uint8_t *)words[i].text; *p; p++) {
            uint16_t *edge = &s->table[((size_t)state << s->shift) + s->class_of[*p]];
            if (!*edge)
                *edge = (uint16_t)s->nstates++;
            state = *edge;
        }
        s->list[s->nlist++] = (struct ending){.next = s->endings[state], .id = words[i].id};
        s->endings[state] = (uint32_t)s->nlist;
    }
}

/* Breadth first: a missing edge gets the target of the suffix state's edge. */
static int complete(struct scan *s)
{
    auto_free uint16_t *queue = calloc(s->nstates, sizeof(*queue));
    if (!queue)
        return -ENOMEM;
    size_t head = 0, tail = 0;
    unsigned columns = 1u << s->shift;
    for (unsigned c = 0; c < columns; c++)
        if (s->table[c])
            queue[tail++] = s->table[c];
    while (head < tail) {
        uint16_t state = queue[head++];
        uint16_t *row = &s->table[(size_t)state << s->shift];
        const uint16_t *back = &s->table[(size_t)s->suffix[state] << s->shift];
        for (unsigned c = 0; c < columns; c++) {
            if (row[c]) {
                s->suffix[row[c]] = back[c];
                queue[tail++] = row[c];
            } else {
                row[c] = back[c];
            }
        }
    }
    return 0;
}

static bool ends_word(const struct scan *s, uint32_t state)
{
    for (; state; state = s->suffix[state])
        if (s->endings[state])
            return true;
    return false;
}

/* Renumbers the states: those in which a word ends become the last. */
static int renumber(struct scan *s)
{
    size_t n = s->nstates, columns = (size_t)1 << s->shift;
    auto_free uint16_t *number = calloc(n, sizeof(*number));
    uint16_t *table = malloc((n << s->shift) * sizeof(*table));
    uint32_t *endings = malloc(n * sizeof(*endings));
    uint16_t *suffix = malloc(n * sizeof(*suffix));
    if (!number || !table || !endings || !suffix) {
        free(table);
        free(endings);
        free(suffix);
        return -ENOMEM;
    }
    uint32_t given = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!ends_word(s, i))
            number[i] = (uint16_t)given++;
    s->accepting = given;
    for (uint32_t i = 0; i < n; i++)
        if (ends_word(s, i))
            number[i] = (uint16_t)given++;
    for (size_t i = 0; i < n; i++) {
        size_t to = number[i];
        for (size_t c = 0; c < columns; c++)
            table[(to << s->shift) + c] = number[s->table[(i << s->shift) + c]];
        endings[to] = s->endings[i];
        suffix[to] = number[s->suffix[i]];
    }
    free(s->table);
    free(s->endings);
    free(s->suffix);
    s->table = table;
    s->endings = endings;
    s->suffix = suffix;
    return 0;
}

int scan_create(const struct scan_word *words, size_t n, struct scan **ret, struct err *err)
{
    size_t most = 1;
    for (size_t i = 0; i < n; i++) {
        if (!words[i].text[0])
            return err_set(err, EINVAL, "word %zu is empty", i);
        most += strlen(words[i].text);
    }
    if (most > STATES_MAX)
        return err_set(err, EINVAL, "%zu bytes of words, at most %d", most, STATES_MAX);
    struct scan *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ENOMEM, "no memory for %zu words", n);
    classify(s, words, n);
    s->nstates = 1;
    s->table = calloc(most << s->shift, sizeof(*s->table));
    s->endings = calloc(most, sizeof(*s->endings));
    s->suffix = calloc(most, sizeof(*s->suffix));
    s->list = calloc(n ? n : 1, sizeof(*s->list));
    bool room = s->table && s->endings && s->suffix && s->list;
    if (room)
        grow(s, words, n);
    if (!room || complete(s) < 0 || renumber(s) < 0) {
        scan_destroy(s);
        return err_set(err, ENOMEM, "no memory for %zu words", n);
    }
    *ret = s;
    return 0;
}

const uint8_t *scan_next(const struct scan *s, uint32_t *state, const uint8_t *p,
                         const uint8_t *end)
{
    const uint16_t *table = s->table;
    const uint8_t *class_of = s->class_of;
    unsigned shift = s->shift;
    uint32_t at = *state, accepting = s->accepting;
    while (p < end) {
        at = table[((size_t)at << shift) + class_of[*p++]];
        if (at >= accepting) {
            *state = at;
            return p;
        }
    }
    *state = at;
    return NULL;
}

void scan_ids(const struct scan *s, uint32_t state, uint64_t *bits)
{
    for (; state; state = s->suffix[state]) {
        for (uint32_t i = s->endings[state]; i; i = s->list[i - 1].next) {
            unsigned id = s->list[i - 1].id;
            bits[id / 64] |= 1ULL << (id % 64);
        }
    }
}
