/* SPDX-License-Identifier: Apache-2.0
 *
 * resnet50: elements of the 161 gradients of ResNet-50 (He et al., 2015), in the order of the
 * layers, each convolution followed by weight and bias of its batch norm.
 */
#ifndef HVD_TESTS_GPU_RESNET50_H
#define HVD_TESTS_GPU_RESNET50_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define GRADIENTS 161

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

#endif
