/* SPDX-License-Identifier: Apache-2.0
 *
 * nearest: "did you mean": the word of many that is closest to a mistyped one.
 *
 * Distance of Damerau and Levenshtein (optimal string alignment); a word further away than a third
 * of its length is no suggestion. Case does not count. Words are borrowed. Any thread.
 */
#ifndef HVD_BASE_NEAREST_H
#define HVD_BASE_NEAREST_H

struct nearest {
    const char *word, *best;
    int distance; /* of best */
};

void nearest_init(struct nearest *n, const char *word);
void nearest_try(struct nearest *n, const char *candidate);

/* NULL: nothing is close. */
const char *nearest_best(const struct nearest *n);

#endif
