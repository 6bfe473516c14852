/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_choice: see shm_choice.h. What seat 0 writes at the start of run r is for run r + 1: every
 * seat that starts run r + 1 has seen seat 0 in run r. Two fields are used alternately.
 */
#include "core/coll/shm_choice.h"

enum { TRY_EVERY = 32, SMALLEST = 16 << 10 };

static int class_of(size_t bytes)
{
    return bytes < SMALLEST ? -1 : bytes < 256u << 10 ? 0 : bytes < 4u << 20 ? 1 : 2;
}

void shm_choice_init(struct shm_choice *c, struct shm *shm)
{
    *c = (struct shm_choice){.shm = shm, .class = -1};
}

/* The smallest of the last samples: a sample is far too high if the rank lost its processor
 * during the run. */
static uint64_t cost_of(const struct shm_choice_class *k, bool far)
{
    uint64_t least = k->cost[far][0];
    for (int i = 1; i < SHM_CHOICE_SAMPLES; i++)
        if (k->cost[far][i] && k->cost[far][i] < least)
            least = k->cost[far][i];
    return least;
}

static bool plan(const struct shm_choice_class *k, uint64_t run)
{
    if (k->samples[false] < SHM_CHOICE_SAMPLES)
        return false;
    if (k->samples[true] < SHM_CHOICE_SAMPLES)
        return true;
    return run % TRY_EVERY == 0 ? !k->best : k->best;
}

bool shm_choice_begin(struct shm_choice *c, uint32_t generation, size_t bytes)
{
    for (int i = 0; c->generation != generation && i < SHM_CHOICES; i++)
        c->classes[i].runs = 0;
    c->generation = generation;
    c->class = class_of(bytes);
    c->far = false;
    c->bytes = bytes;
    c->spent = 0;
    if (c->class < 0)
        return false;
    struct shm_choice_class *k = &c->classes[c->class];
    _Atomic uint8_t *said = shm_flags_of(c->shm, 0)->far[c->class];
    uint64_t run = k->runs++;
    c->far = atomic_load_explicit(&said[run % 2], memory_order_relaxed);
    if (c->shm->seat == 0)
        atomic_store_explicit(&said[(run + 1) % 2], plan(k, run + 1), memory_order_relaxed);
    return c->far;
}

void shm_choice_end(struct shm_choice *c)
{
    if (!shm_choice_timed(c))
        return;
    struct shm_choice_class *k = &c->classes[c->class];
    k->cost[c->far][k->samples[c->far]++ % SHM_CHOICE_SAMPLES] =
        c->spent / (c->bytes / 1024) * 1024 + 1;
    if (k->samples[false] < SHM_CHOICE_SAMPLES || k->samples[true] < SHM_CHOICE_SAMPLES)
        return;
    if (cost_of(k, !k->best) * 10 < cost_of(k, k->best) * 9)
        k->best = !k->best;
}
