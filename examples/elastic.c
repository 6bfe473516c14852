/* SPDX-License-Identifier: Apache-2.0
 *
 * elastic: a training loop with a changing number of ranks, through hvd.h.
 *
 *     hvdrun -np 4 --min-np 1 --max-np 8 --name line build/examples/elastic
 *     hvdrun status line; hvdrun scale line 6; kill -9 any of its ranks
 *
 * It fits a plane to points that each rank computes from their numbers. The training state is the
 * step and the weights. When a rank is lost, no step is lost: the surviving ranks finish the sum of
 * the gradients. Ranks join and leave at the end of a step, in hvd_commit(); a joiner receives the
 * state from another rank.
 */
#include <errno.h>
#include <hvd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { INPUTS = 8, POINTS = 4096, STEPS = 2000 };

struct state {
    int64_t step;
    double weights[INPUTS];
};

/* Coordinate i of a point, between -1 and 1. */
static double coordinate(int point, int i)
{
    uint32_t x = (uint32_t)(point * INPUTS + i) * 2654435761U;
    x = (x ^ x >> 15) * 2246822519U;
    return (double)(x ^ x >> 13) / UINT32_MAX * 2 - 1;
}

/* One step of gradient descent on the mean squared error. The solution is the weights 1, 2, 3 ...
 */
static int train(struct state *s)
{
    double gradient[INPUTS] = {0};
    for (int n = hvd_rank(); n < POINTS; n += hvd_size()) {
        double error = 0;
        for (int i = 0; i < INPUTS; i++)
            error += (s->weights[i] - (i + 1)) * coordinate(n, i);
        for (int i = 0; i < INPUTS; i++)
            gradient[i] += error * coordinate(n, i) / POINTS;
    }
    int rc = hvd_allreduce("gradient", gradient, gradient, INPUTS, HVD_FLOAT64, HVD_SUM);
    for (int i = 0; rc == 0 && i < INPUTS; i++)
        s->weights[i] -= 0.1 * gradient[i];
    s->step++;
    return rc;
}

/* Collective: rank world->source broadcasts the state, and joiners receive it. */
static int share(struct state *s, const struct hvd_world *world)
{
    return hvd_broadcast("state", s, sizeof(*s), HVD_UINT8, world->source);
}

/* The end of a step. -ESHUTDOWN: this rank has been removed from the job and must end. */
static int commit(struct state *s)
{
    struct hvd_world world = {.size_of_struct = sizeof(world)};
    int rc = hvd_commit();
    if (rc <= 0)
        return rc;
    hvd_world(&world);
    if (world.rank == world.source)
        printf("step %lld: %d ranks (%d came, %d went)\n", (long long)s->step, world.size,
               world.joined, world.left);
    return world.joined > 0 ? share(s, &world) : 0;
}

int main(void)
{
    struct state s = {0};
    struct hvd_world world = {.size_of_struct = sizeof(world)};
    int rc = hvd_init();
    /* A real program does its slow local start-up here, before hvd_enter(): other ranks may be
     * training. */
    if (rc == 0)
        rc = hvd_enter();
    if (rc == 0)
        rc = hvd_world(&world);
    if (rc == 0 && world.is_new)
        rc = share(&s, &world);
    while (rc == 0 && s.step < STEPS) {
        rc = train(&s);
        usleep(5000); /* stands for more computation */
        if (rc == 0)
            rc = commit(&s);
    }
    if (rc == 0 && hvd_rank() == 0)
        printf("weights %.3f %.3f ... %.3f after %lld steps on %d ranks\n", s.weights[0],
               s.weights[1], s.weights[INPUTS - 1], (long long)s.step, hvd_size());
    if (rc < 0 && rc != -ESHUTDOWN)
        fprintf(stderr, "elastic: %s\n", hvd_error());
    hvd_shutdown();
    return rc < 0 && rc != -ESHUTDOWN;
}
