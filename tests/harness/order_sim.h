/* SPDX-License-Identifier: Apache-2.0
 *
 * order_sim: random programs whose ranks launch operations of several groups on GPUs, on random
 * trees, with messages that take random times. A GPU is one stream: an operation ends when it is
 * the first of the streams of all its ranks. Nothing here asserts: order_sim_run() says what went
 * wrong. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_ORDER_SIM_H
#define HVD_TESTS_HARNESS_ORDER_SIM_H

#include <stdbool.h>
#include <stdint.h>

enum order_sim_kind {
    /* All ranks submit in the same order. Each waits wherever it likes, so that some ranks are far
     * ahead of others. Operations are announced when they are submitted. */
    ORDER_SIM_SAME,
    /* As SAME, but some groups are negotiated: an operation is announced some time after all ranks
     * have submitted it. */
    ORDER_SIM_NEGOTIATED,
    /* Each rank submits the operations of a block in an order of its own, and waits between
     * blocks. */
    ORDER_SIM_MIXED,
    /* As SAME, one long phase. */
    ORDER_SIM_STEADY,
    ORDER_SIM_KINDS
};

struct order_sim_result {
    char why[200]; /* empty: all went well */
    uint64_t launched, logged, frozen, thaws;
    uint64_t late; /* STEADY: messages after three quarters of the program */
    bool all_frozen;
};

void order_sim_run(uint64_t seed, enum order_sim_kind kind, struct order_sim_result *ret);

#endif
