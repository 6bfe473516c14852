/* SPDX-License-Identifier: Apache-2.0
 *
 * adasum: the arithmetic of Adasum (Maleki et al., "Scaling Distributed Training with Adaptive
 * Summation", MLSys 2021): two vectors a and b are combined to
 *
 *     (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
 *
 * and n vectors as a binary tree. With n no power of two, the vectors above the largest power of
 * two are first combined with the lowest ones. Pure; any thread.
 */
#ifndef HVD_COLL_ADASUM_H
#define HVD_COLL_ADASUM_H

#include <stdbool.h>
#include <stddef.h>

/* The vectors of one level of the tree: `into` becomes the combination of both. */
struct adasum_pair {
    int into, from;
};

/* The number of levels for n vectors; 0 for one. */
int adasum_levels(int n);

/* Fills ret, which has room for n / 2 pairs, with those of a level. Returns how many there are. */
int adasum_pairs(int n, int level, struct adasum_pair *ret);

/* a.a, a.b and b.b of two vectors of n elements, float (or double, if wide), summed as double. */
void adasum_dots(bool wide, const void *a, const void *b, size_t n, double ret[3]);

/* Combines a and b, whose whole vectors have these products, into a. */
void adasum_combine(bool wide, void *a, const void *b, size_t n, const double dots[3]);

#endif
