/* SPDX-License-Identifier: Apache-2.0
 *
 * workers_read: see workers_read.h.
 */
#include "diagnostics/checks/workers_read.h"

#include <stdio.h>
#include <string.h>

#define WORKERS_MAX 4096

const struct answer *workers_ask(const struct view *v, struct result *r, int *ret_size)
{
    const struct answer *a = machine_answer(v->machine, "workers");
    int n = (int)answer_int(a, "size", 0);
    if (a->state != ANSWER_OK || n < 1 || n > WORKERS_MAX) {
        result_skip(r, "needs several machines: hvdrun --doctor -H h1,h2");
        return NULL;
    }
    *ret_size = n;
    return a;
}

const char *workers_host(const struct answer *a, int i, char dst[WORKERS_HOST])
{
    snprintf(dst, WORKERS_HOST, "%.60s (worker %d)", answer_str_at(a, "worker", i, "host", "?"), i);
    return dst;
}

const char *workers_of(const struct answer *a, int i, const char *key)
{
    return answer_str_at(a, "worker", i, key, "none");
}

int workers_other(const struct answer *a, int n, const char *key)
{
    for (int i = 1; i < n; i++)
        if (strcmp(workers_of(a, i, key), workers_of(a, 0, key)) != 0)
            return i;
    return -1;
}

int workers_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
