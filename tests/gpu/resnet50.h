/* SPDX-License-Identifier: Apache-2.0
 *
 * resnet50: elements of the 161 gradients of ResNet-50 (He et al., 2015), in the order of the
 * layers, each convolution followed by weight and bias of its batch norm.
 */
#ifndef HVD_TESTS_GPU_RESNET50_H
#define HVD_TESTS_GPU_RESNET50_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define GRADIENTS 161
#define LAYERS    54 /* a convolution with its batch norm, or the last two gradients */

static inline size_t *resnet50_conv(size_t *at, size_t in, size_t out, size_t side)
{
    *at++ = in * out * side * side;
    *at++ = out;
    *at++ = out;
    return at;
}

static inline void resnet50(size_t counts[GRADIENTS])
{
    static const int blocks[] = {3, 4, 6, 3};
    size_t in = 64, width = 64, *at = resnet50_conv(counts, 3, 64, 7);
    for (int stage = 0; stage < 4; stage++, width *= 2) {
        for (int b = 0; b < blocks[stage]; b++, in = 4 * width) {
            at = resnet50_conv(at, in, width, 1);
            at = resnet50_conv(at, width, width, 3);
            at = resnet50_conv(at, width, 4 * width, 1);
            if (b == 0)
                at = resnet50_conv(at, in, 4 * width, 1);
        }
    }
    *at++ = 2048 * 1000;
    *at++ = 1000;
    if (at - counts != GRADIENTS) {
        fprintf(stderr, "%td gradients, want %d\n", at - counts, GRADIENTS);
        exit(1);
    }
}

/* The gradients in the order of backward, the last layer's first, and whether each is the first one
 * of its layer. */
static inline void resnet50_backward(size_t counts[GRADIENTS], bool first[GRADIENTS])
{
    size_t forward[GRADIENTS];
    resnet50(forward);
    for (int i = 0; i < GRADIENTS; i++) {
        counts[i] = forward[GRADIENTS - 1 - i];
        first[i] = i == 0 || (i >= 2 && (i - 2) % 3 == 0);
    }
}

#endif
