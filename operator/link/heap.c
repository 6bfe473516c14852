/* SPDX-License-Identifier: Apache-2.0
 *
 * heap: see heap.h.
 */
#include "operator/link/heap.h"

#include <malloc.h>

#define TRIM_MS 2000
#define BIG     (64 << 10) /* bytes: larger blocks get their own mapping */

/* Fixed limits, because glibc would raise them after the first large block. */
void heap_bound(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, BIG);
    mallopt(M_TRIM_THRESHOLD, BIG);
    mallopt(M_TOP_PAD, BIG);
}

struct trimming {
    struct loop *loop;
    struct loop_timer *timer;
};

static void on_trimming(void *arg)
{
    struct trimming *t = arg;
    malloc_trim(0);
    loop_timer_start(t->loop, t->timer, TRIM_MS, on_trimming, t);
}

void heap_trim(struct loop *loop, struct loop_timer *timer)
{
    static struct trimming one;
    one = (struct trimming){loop, timer};
    on_trimming(&one);
}
