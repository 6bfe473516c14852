/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate_sim_private: what the two files of the simulation share: negotiate_sim.c has the clock,
 * the programs and the engine, negotiate_sim_ops.c what negotiate calls.
 */
#ifndef HVD_TESTS_NEGOTIATE_SIM_PRIVATE_H
#define HVD_TESTS_NEGOTIATE_SIM_PRIVATE_H

#include "tests/harness/negotiate_sim.h"

/* The rank's tensor that is under way under this ticket, or NULL. */
struct sim_tensor *sim_by_id(struct sim_rank *r, uint64_t id);

/* The context is the struct sim_rank. */
extern const struct negotiate_ops sim_ops;

#endif
