/* SPDX-License-Identifier: Apache-2.0
 *
 * table: see table.h.
 */
#include "agent/table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void add_cell(struct table *t, char *cell)
{
    char **grown = cell ? realloc(t->cells, (t->ncells + 1) * sizeof(*grown)) : NULL;
    if (!grown) {
        free(cell);
        t->failed = true;
        return;
    }
    t->cells = grown;
    size_t *width = &t->width[t->ncells % (size_t)t->ncolumns], len = strlen(cell);
    *width = len > *width ? len : *width;
    t->cells[t->ncells++] = cell;
}

void table_init(struct table *t, const char *columns)
{
    *t = (struct table){0};
    for (const char *p = columns; *p && t->ncolumns < TABLE_COLUMNS; p += *p == '|') {
        t->right[t->ncolumns++] = *p == '>';
        p += strcspn(p, "|");
    }
    for (const char *p = columns; *p; p += *p == '|') {
        p += *p == '>';
        add_cell(t, strndup(p, strcspn(p, "|")));
        p += strcspn(p, "|");
    }
}

void table_add(struct table *t, const char *fmt, ...)
{
    char *cell;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&cell, fmt, ap) < 0)
        cell = NULL;
    va_end(ap);
    add_cell(t, cell);
}

int table_print(const struct table *t, FILE *out)
{
    if (t->failed)
        return -ENOMEM;
    for (size_t i = 0; i < t->ncells; i++) {
        size_t column = i % (size_t)t->ncolumns;
        bool last = column + 1 == (size_t)t->ncolumns;
        int width = last && !t->right[column] ? 0 : (int)t->width[column];
        fprintf(out, "%*s%s", t->right[column] ? width : -width, t->cells[i], last ? "\n" : "  ");
    }
    return 0;
}

void table_fini(struct table *t)
{
    for (size_t i = 0; i < t->ncells; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table){0};
}
