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
    bool right[TABLE_COLUMNS]; /* right-aligned, for numbers */
    size_t width[TABLE_COLUMNS];
    char **cells; /* row by row; the first row is the head */
    size_t ncells;
    bool failed; /* an allocation failed: a cell is missing */
};

/* columns: the heads, separated by |. A > in front right-aligns the column. */
void table_init(struct table *t, const char *columns);

/* Adds a cell, row by row. */
void table_add(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns 0, or -ENOMEM and prints nothing. The last column is not padded. */
int table_print(const struct table *t, FILE *out);
void table_fini(struct table *t);

#endif
