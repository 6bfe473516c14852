/* SPDX-License-Identifier: Apache-2.0
 *
 * nearest: "did you mean": finds the candidate closest to a mistyped word.
 *
 * Measures the Damerau-Levenshtein distance (optimal string alignment), ignoring case. A candidate
 * further away than a third of its length (1 below 6 letters) is not suggested. The caller keeps
 * the words alive. Any thread.
 */
#ifndef HVD_BASE_NEAREST_H
#define HVD_BASE_NEAREST_H

struct nearest {
    const char *word, *best;
    int distance; /* of best */
};

void nearest_init(struct nearest *n, const char *word);
void nearest_try(struct nearest *n, const char *candidate);

/* Returns the closest of the candidates tried; NULL: none is close enough. */
const char *nearest_best(const struct nearest *n);

#endif
