/* SPDX-License-Identifier: Apache-2.0
 *
 * digits: softmax regression on handwritten digits through hvd.h, on any number of ranks.
 *
 *     python3 examples/digits_export.py digits.csv
 *     hvdrun -np 4 build/examples/digits digits.csv
 *
 * A line of the file is 64 pixels (0..16) and the label. Every rank reads all of it and works on
 * each size-th image; the first TRAIN images train, the others are held out. The gradients of all
 * ranks are summed, so the weights stay the same everywhere. Rank 0 prints loss and accuracy.
 */
#include <hvd.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PIXELS = 64,
    INPUTS = PIXELS + 1,
    CLASSES = 10,
    TRAIN = 1440,
    MAX_IMAGES = 2000,
    STEPS = 600
};

static const float rate = 1.5F;

struct data {
    int count;
    float pixels[MAX_IMAGES][INPUTS]; /* the last is 1: the bias */
    int labels[MAX_IMAGES];
};

static int data_read(struct data *data, const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    data->count = 0;
    for (int value; data->count < MAX_IMAGES && fscanf(file, "%d", &value) == 1; data->count++) {
        float *pixels = data->pixels[data->count];
        for (int i = 0; i < PIXELS; i++) {
            pixels[i] = (float)value / 16;
            if (fscanf(file, ",%d", &value) != 1)
                value = -1;
        }
        pixels[PIXELS] = 1;
        data->labels[data->count] = value;
        if (value < 0 || value >= CLASSES) {
            fclose(file);
            return -1;
        }
    }
    int complete = feof(file);
    fclose(file);
    return complete && data->count > TRAIN ? 0 : -1;
}

/* The probabilities of the classes; returns the most probable one. */
static int classify(float weights[CLASSES][INPUTS], const float *pixels, float *ret_p)
{
    int best = 0;
    float sum = 0;
    for (int c = 0; c < CLASSES; c++) {
        ret_p[c] = 0;
        for (int i = 0; i < INPUTS; i++)
            ret_p[c] += weights[c][i] * pixels[i];
        best = ret_p[c] > ret_p[best] ? c : best;
    }
    float top = ret_p[best];
    for (int c = 0; c < CLASSES; c++)
        sum += ret_p[c] = expf(ret_p[c] - top);
    for (int c = 0; c < CLASSES; c++)
        ret_p[c] /= sum;
    return best;
}

/* This rank's part of the gradient of the mean loss; returns its part of that loss. */
static float gradient(const struct data *data, float weights[CLASSES][INPUTS],
                      float ret_gradient[CLASSES][INPUTS])
{
    float loss = 0, p[CLASSES];
    for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < INPUTS; i++)
            ret_gradient[c][i] = 0;
    for (int n = hvd_rank(); n < TRAIN; n += hvd_size()) {
        classify(weights, data->pixels[n], p);
        loss -= logf(p[data->labels[n]]) / TRAIN;
        p[data->labels[n]] -= 1;
        for (int c = 0; c < CLASSES; c++)
            for (int i = 0; i < INPUTS; i++)
                ret_gradient[c][i] += p[c] * data->pixels[n][i] / TRAIN;
    }
    return loss;
}

static int train(const struct data *data, float weights[CLASSES][INPUTS])
{
    static float step[CLASSES][INPUTS];
    for (int s = 0; s <= STEPS; s++) {
        float loss = gradient(data, weights, step);
        int rc = hvd_allreduce("gradient", step, step, CLASSES * INPUTS, HVD_FLOAT32, HVD_SUM);
        if (rc == 0)
            rc = hvd_allreduce("loss", &loss, &loss, 1, HVD_FLOAT32, HVD_SUM);
        if (rc < 0)
            return rc;
        for (int c = 0; c < CLASSES; c++)
            for (int i = 0; i < INPUTS; i++)
                weights[c][i] -= rate * step[c][i];
        if (hvd_rank() == 0 && s % 100 == 0)
            printf("step %3d  loss %.6f\n", s, (double)loss);
    }
    return 0;
}

static int test(const struct data *data, float weights[CLASSES][INPUTS])
{
    float p[CLASSES];
    int64_t counts[2] = {0, 0}; /* right ones, all */
    for (int n = TRAIN + hvd_rank(); n < data->count; n += hvd_size()) {
        counts[0] += classify(weights, data->pixels[n], p) == data->labels[n];
        counts[1]++;
    }
    int rc = hvd_allreduce("accuracy", counts, counts, 2, HVD_INT64, HVD_SUM);
    if (rc == 0 && hvd_rank() == 0)
        printf("accuracy %.4f on %d held-out images, %d ranks\n",
               (double)counts[0] / (double)counts[1], (int)counts[1], hvd_size());
    return rc;
}

int main(int argc, char **argv)
{
    static struct data data;
    static float weights[CLASSES][INPUTS];
    if (argc != 2 || data_read(&data, argv[1]) < 0) {
        fprintf(stderr, "usage: digits FILE    (a file that digits_export.py has written)\n");
        return 2;
    }
    if (hvd_init() < 0 || train(&data, weights) < 0 || test(&data, weights) < 0) {
        fprintf(stderr, "digits: %s\n", hvd_error());
        return 1;
    }
    return hvd_shutdown() < 0;
}
