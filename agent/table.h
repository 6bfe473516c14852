/* SPDX-License-Identifier: Apache-2.0
 *
 * table: columns of text for a terminal, each as wide as its widest cell. Used by hvdrun's
 * commands.
 */
#ifndef HVD_AGENT_TABLE_H
#define HVD_AGENT_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#define TABLE_COLUMNS 8

struct table {
    int ncolumns;
    bool right[TABLE_COLUMNS]; /* numbers stand at the right */
    size_t width[TABLE_COLUMNS];
    char **cells; /* row after row, the head is the first */
    size_t ncells;
    bool failed; /* memory was out: a row is missing */
};

/* The head: names with | between them, one with > in front is a column of numbers. */
void table_init(struct table *t, const char *columns);

/* One more cell, row after row. */
void table_add(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 0; -ENOMEM, nothing is printed. The last column is not filled up. */
int table_print(const struct table *t, FILE *out);
void table_fini(struct table *t);

#endif
