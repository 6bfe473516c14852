/* SPDX-License-Identifier: Apache-2.0
 *
 * digits: softmax regression on handwritten digits through hvd.h, on any number of ranks.
 *
 *     python3 examples/digits_export.py digits.csv
 *     hvdrun -np 4 build/examples/digits digits.csv
 *
 * A line of the file is 64 pixels (0..16) and the label. Every rank reads the whole file and works
 * on every size-th image. The first TRAIN images are for training, the others are held out. The
 * gradients of all ranks are summed, so the weights are the same on all ranks. Rank 0 prints loss
 * and accuracy.
 */
#include <hvd.h>
#include <math.h>
#include <stdio.h>

enum { INPUTS = 65, CLASSES = 10, TRAIN = 1440, MAX_IMAGES = 2000, STEPS = 600 };

static float pixels[MAX_IMAGES][INPUTS]; /* the last input is always 1, for the bias */
static int labels[MAX_IMAGES], images;
static float weights[CLASSES][INPUTS];

static int read_images(const char *path)
{
    FILE *file = fopen(path, "r");
    int value, good = file != NULL;
    while (good && images < MAX_IMAGES && fscanf(file, "%d", &value) == 1) {
        for (int i = 0; good && i < INPUTS - 1; i++) {
            pixels[images][i] = (float)value / 16;
            good = fscanf(file, ",%d", &value) == 1;
        }
        pixels[images][INPUTS - 1] = 1;
        labels[images++] = value;
        good = good && value >= 0 && value < CLASSES;
    }
    good = good && feof(file) && images > TRAIN;
    if (file)
        fclose(file);
    return good ? 0 : -1;
}

/* Computes the probabilities of the classes in ret_p; returns the most probable class. */
static int classify(const float *input, float *ret_p)
{
    int best = 0;
    float sum = 0;
    for (int c = 0; c < CLASSES; c++) {
        ret_p[c] = 0;
        for (int i = 0; i < INPUTS; i++)
            ret_p[c] += weights[c][i] * input[i];
        best = ret_p[c] > ret_p[best] ? c : best;
    }
    float top = ret_p[best];
    for (int c = 0; c < CLASSES; c++)
        sum += ret_p[c] = expf(ret_p[c] - top);
    for (int c = 0; c < CLASSES; c++)
        ret_p[c] /= sum;
    return best;
}

/* One step of gradient descent on the mean loss. Each rank computes the gradient of its images. */
static int train(int step)
{
    float gradient[CLASSES][INPUTS] = {{0}}, loss = 0, p[CLASSES];
    for (int n = hvd_rank(); n < TRAIN; n += hvd_size()) {
        classify(pixels[n], p);
        loss -= logf(p[labels[n]]) / TRAIN;
        p[labels[n]] -= 1;
        for (int c = 0; c < CLASSES; c++)
            for (int i = 0; i < INPUTS; i++)
                gradient[c][i] += p[c] * pixels[n][i] / TRAIN;
    }
    if (hvd_allreduce("gradient", gradient, gradient, CLASSES * INPUTS, HVD_FLOAT32, HVD_SUM) < 0 ||
        hvd_allreduce("loss", &loss, &loss, 1, HVD_FLOAT32, HVD_SUM) < 0)
        return -1;
    for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < INPUTS; i++)
            weights[c][i] -= 1.5F * gradient[c][i];
    if (hvd_rank() == 0 && step % 100 == 0)
        printf("step %3d  loss %.6f\n", step, (double)loss);
    return 0;
}

static int test(void)
{
    float p[CLASSES];
    int right = 0;
    for (int n = TRAIN + hvd_rank(); n < images; n += hvd_size())
        right += classify(pixels[n], p) == labels[n];
    if (hvd_allreduce("right", &right, &right, 1, HVD_INT32, HVD_SUM) < 0)
        return -1;
    if (hvd_rank() == 0)
        printf("accuracy %.4f on %d held-out images, %d ranks\n", (double)right / (images - TRAIN),
               images - TRAIN, hvd_size());
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2 || read_images(argv[1]) < 0) {
        fprintf(stderr, "usage: digits FILE    (a file made by digits_export.py)\n");
        return 2;
    }
    int rc = hvd_init();
    for (int step = 0; rc == 0 && step <= STEPS; step++)
        rc = train(step);
    if (rc == 0)
        rc = test();
    if (rc < 0)
        fprintf(stderr, "digits: %s\n", hvd_error());
    return hvd_shutdown() < 0 || rc < 0;
}
