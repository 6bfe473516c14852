/* SPDX-License-Identifier: Apache-2.0
 *
 * formula: what an Adasum has to give, computed from the published formula in double precision.
 * Tests only, for forked ranks: errors are printed and returned, never asserted.
 */
#ifndef HVD_TESTS_HARNESS_FORMULA_H
#define HVD_TESTS_HARNESS_FORMULA_H

#include <stddef.h>

#include <hvd.h>

#define FORMULA_RANKS 16 /* the most */

/* The types of an Adasum. */
#define FORMULA_TYPES 4
extern const enum hvd_dtype formula_types[FORMULA_TYPES];

struct formula {
    enum hvd_dtype dtype;
    size_t n;
    int seed;                   /* of the ranks' tensors; with some of them, one is all 0 */
    double prescale, postscale; /* 0: none */
    /* A character for each rank, its host: the hosts' averages are combined, in the order of their
     * first ranks. NULL: the ranks' tensors are. */
    const char *hosts;
};

/* Writes the tensor of a rank. */
void formula_fill(const struct formula *f, int rank, void *to);

/* 0, or FAIL() if these are not the n elements of the result for ranks 0 to size - 1. */
int formula_check(const struct formula *f, int size, const void *got);

/* ---- while members are lost ----------------------------------------------------------------- */

/* Writes n elements of the tensor of one of FORMULA_MEMBERS members for a step. The members'
 * tensors are orthogonal, so that their Adasum is their sum. It is submitted with this prescale: an
 * operation that is run again from its own result gives another one. */
#define FORMULA_MEMBERS  4
#define FORMULA_PRESCALE 2
void formula_fill_orthogonal(int member, int step, float *to, size_t n);

/* 0, or FAIL() if these are not the Adasum of this member's tensor and, each of them completely or
 * not at all, those of others. hosts: as in struct formula, for the members. */
int formula_check_orthogonal(int member, int step, const float *got, size_t n, const char *hosts);

#endif
