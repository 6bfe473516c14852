/* SPDX-License-Identifier: Apache-2.0
 *
 * steps N MS [FILE]: N elastic steps of MS milliseconds each: a sum that is checked, then a commit.
 * Prints "pid P world SIZE step S" at its first world and at each change, "pid P done S" at the
 * end. Exits with 7 as soon as FILE exists. For tests of pods.
 */
#include <errno.h>
#include <hvd.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int say(struct hvd_world *world, int64_t step)
{
    int rc = hvd_world(world);
    if (rc == 0)
        printf("pid %d world %d step %" PRId64 "\n", (int)getpid(), world->size, step);
    fflush(stdout);
    return rc;
}

/* Each contributor adds one, so in a step without a loss the sum is the size of the world. */
static int one_step(int64_t *step, int ms)
{
    double one[256], sum[256];
    for (int i = 0; i < 256; i++)
        one[i] = 1;
    int rc = hvd_allreduce("one", one, sum, 256, HVD_FLOAT64, HVD_SUM);
    for (int i = 0; i < 256 && rc == 0; i++)
        if (sum[i] < 1 || sum[i] > 1024 || sum[i] != sum[0])
            return -EBADMSG;
    usleep((useconds_t)ms * 1000);
    (*step)++;
    return rc;
}

static int change(int64_t *step)
{
    struct hvd_world world = {.size_of_struct = sizeof(world)};
    int rc = hvd_commit();
    if (rc <= 0)
        return rc;
    rc = say(&world, *step);
    return rc == 0 && world.joined > 0
               ? hvd_broadcast("step", step, sizeof(*step), HVD_UINT8, world.source)
               : rc;
}

int main(int argc, char **argv)
{
    struct hvd_world world = {.size_of_struct = sizeof(world)};
    int64_t step = 0, steps = argc > 1 ? atoll(argv[1]) : 0;
    int ms = argc > 2 ? atoi(argv[2]) : 0;
    int rc = hvd_init();
    if (rc == 0)
        rc = hvd_enter();
    if (rc == 0)
        rc = say(&world, step);
    if (rc == 0 && world.is_new)
        rc = hvd_broadcast("step", &step, sizeof(step), HVD_UINT8, world.source);
    while (rc == 0 && step < steps) {
        rc = one_step(&step, ms);
        if (rc == 0)
            rc = change(&step);
        if (argc > 3 && access(argv[3], F_OK) == 0)
            return 7;
    }
    if (rc == 0)
        printf("pid %d done %" PRId64 "\n", (int)getpid(), step);
    else if (rc != -ESHUTDOWN)
        fprintf(stderr, "steps: %s\n", hvd_error());
    hvd_shutdown();
    return rc < 0 && rc != -ESHUTDOWN;
}
