/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh_ranks: forked ranks that make a mesh over a struct boot filled by hand; the parent plays the
 * launcher (the cards go through pipes) and, where asked, the agent. A rank never asserts: it
 * returns an exit code.
 */
#ifndef HVD_TESTS_HARNESS_MESH_RANKS_H
#define HVD_TESTS_HARNESS_MESH_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/boot/boot.h"
#include "core/transport/mesh.h"

#define MESH_RANKS_MAX 8

struct mesh_ranks {
    int n;
    const char *hosts; /* a character a rank: HVD_LOCALITY; NULL: one host */
    bool no_key;
    bool agent;     /* the parent is their agent and relays */
    int odd_key;    /* this rank has another key; 0: none (rank 0 has the right one) */
    int timeout_ms; /* of mesh_create(); 0: 20 s */
    int rounds;     /* how often they meet and run body, one after the other; 0: once */
    /* In the rank, when the cards are exchanged and before mesh_create(); may be NULL. */
    void (*met)(int rank);
    /* In the rank, once the mesh is there. Its result is the exit code. */
    int (*body)(struct mesh *mesh, void *arg);
    /* In the rank, instead of body, when mesh_create() failed; NULL: exit 100. */
    int (*no_mesh)(int rank, int rc, const struct err *err);
    /* In the rank, before it listens; may be NULL. */
    void (*before)(int rank);
    void *arg;
    int status[MESH_RANKS_MAX]; /* exit code, or -signal */
};

/* Runs them all, at most 60 s (-SIGALRM then). */
void mesh_ranks_run(struct mesh_ranks *m);

/* Asserts that each has ended with this status. */
void mesh_ranks_expect(const struct mesh_ranks *m, int status);

/* For bodies: polls and drives until done(arg) or ms have passed: 0, 1 (time), or the error of the
 * mesh. */
int mesh_ranks_until(struct mesh *mesh, bool (*done)(void *arg), void *arg, int ms, int *ret_peer,
                     struct err *err);

/* Says goodbye and waits until the others have; then destroys. */
void mesh_ranks_leave(struct mesh *mesh);

#endif
