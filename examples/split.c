/* SPDX-License-Identifier: Apache-2.0
 *
 * split: a model that is split over ranks, by sets (hvd.h). A linear model is fitted to made-up
 * data.
 *
 *     hvdrun -np 4 build/examples/split
 *
 * With an even number of ranks two ranks next to each other hold one model: each has the weights of
 * half of the inputs. They are a set, which adds their parts of the predictions. Each pair works on
 * its own share of the samples. The ranks that hold the same half are a set, too, which averages
 * the gradients. The losses that rank 0 prints do not depend on the number of ranks.
 */
#include <hvd.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 64, SAMPLES = 480, STEPS = 200, EVERY = 40, MOST = 1024 };

static float inputs[SAMPLES][INPUTS], wanted[SAMPLES], weights[INPUTS];

/* The same on every rank. */
static void make_data(void)
{
    unsigned state = 1;
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < INPUTS; i++) {
            state = state * 1103515245 + 12345;
            inputs[s][i] = (float)(state >> 16 & 1023) / 512 - 1;
            wanted[s] += inputs[s][i] * (float)(i % 5 - 2);
        }
}

struct place {
    int halves;        /* parts of a model: 1 or 2 */
    int first, last;   /* this rank's inputs */
    int model, models; /* which of the copies this rank has a part of */
    int from, to;      /* the model's samples */
    int pair, row;     /* the sets of this rank's model, and of the ranks with the same inputs */
};

/* All ranks make all sets, in the same order, and keep the numbers of those that they are in. */
static int find_place(struct place *p)
{
    int rank = hvd_rank(), size = hvd_size(), ranks[MOST], set;
    p->halves = size % 2 == 0 ? 2 : 1;
    p->models = size / p->halves;
    p->model = rank / p->halves;
    p->first = INPUTS / p->halves * (rank % p->halves);
    p->last = p->first + INPUTS / p->halves;
    p->from = SAMPLES * p->model / p->models;
    p->to = SAMPLES * (p->model + 1) / p->models;
    for (int m = 0; m < p->models; m++) {
        for (int h = 0; h < p->halves; h++)
            ranks[h] = m * p->halves + h;
        if (hvd_set_add(ranks, p->halves, &set) < 0)
            return -1;
        p->pair = m == p->model ? set : p->pair;
    }
    for (int h = 0; h < p->halves; h++) {
        for (int m = 0; m < p->models; m++)
            ranks[m] = m * p->halves + h;
        if (hvd_set_add(ranks, p->models, &set) < 0)
            return -1;
        p->row = h == rank % p->halves ? set : p->row;
    }
    return 0;
}

static int reduce(int set, const char *name, float *data, int64_t n, enum hvd_op op)
{
    hvd_handle handle;
    const struct hvd_request request = {.kind = HVD_ALLREDUCE,
                                        .name = name,
                                        .input = data,
                                        .output = data,
                                        .dtype = HVD_FLOAT32,
                                        .ndim = 1,
                                        .shape = &n,
                                        .op = op,
                                        .device = -1,
                                        .set = set};
    int rc = hvd_submit(&request, 1, &handle);
    return rc < 0 ? rc : hvd_wait(handle);
}

/* Returns the mean squared error before the step, over all samples; negative: an operation failed.
 */
static float step(const struct place *p)
{
    static float errors[SAMPLES], gradient[INPUTS];
    int from = p->from, to = p->to;
    float loss[1] = {0};
    for (int s = from; s < to; s++) {
        errors[s] = 0;
        for (int i = p->first; i < p->last; i++)
            errors[s] += weights[i] * inputs[s][i];
    }
    if (reduce(p->pair, "predictions", errors + from, to - from, HVD_SUM) < 0)
        return -1;
    for (int i = p->first; i < p->last; i++)
        gradient[i] = 0;
    for (int s = from; s < to; s++) {
        errors[s] -= wanted[s];
        loss[0] += errors[s] * errors[s] / SAMPLES;
        for (int i = p->first; i < p->last; i++)
            gradient[i] += 2 * errors[s] * inputs[s][i] / SAMPLES;
    }
    if (reduce(p->row, "gradient", gradient + p->first, p->last - p->first, HVD_SUM) < 0 ||
        reduce(p->row, "loss", loss, 1, HVD_SUM) < 0)
        return -1;
    for (int i = p->first; i < p->last; i++)
        weights[i] -= 0.1F * gradient[i];
    return loss[0];
}

int main(void)
{
    struct place place = {0};
    float loss = 0;
    make_data();
    if (hvd_init() < 0 || hvd_size() > MOST || find_place(&place) < 0)
        loss = -1;
    for (int k = 0; k < STEPS && loss >= 0; k++) {
        loss = step(&place);
        if (hvd_rank() == 0 && loss >= 0 && k % EVERY == 0)
            printf("step %3d: loss %.6f\n", k, (double)loss);
    }
    if (loss < 0)
        fprintf(stderr, "split: %s\n", hvd_error());
    hvd_shutdown();
    return loss < 0;
}
