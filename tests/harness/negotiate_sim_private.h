/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate_sim_private: declarations shared by the simulation's files: negotiate_sim.c (clock,
 * programs, engine) and negotiate_sim_ops.c (negotiation's callbacks).
 */
#ifndef HVD_TESTS_NEGOTIATE_SIM_PRIVATE_H
#define HVD_TESTS_NEGOTIATE_SIM_PRIVATE_H

#include "tests/harness/negotiate_sim.h"

/* The rank's tensor that is in flight with this id, or NULL. */
struct sim_tensor *sim_by_id(struct sim_rank *r, uint64_t id);

/* Starts a batch of the lane: checks that all ranks run the same at its place. */
void sim_start(struct sim_rank *r, enum sim_lane_kind kind, struct sim_batch *b);

/* The callbacks that negotiation gets; their ctx is a struct sim_rank. */
extern const struct negotiate_ops sim_ops;

#endif
