/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh_ranks: forked ranks that create a mesh from a struct boot filled by hand. The parent plays
 * the launcher (cards go through pipes) and, if asked, the agent. A rank never asserts: it returns
 * an exit code.
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
    const char *hosts; /* a character for each rank: HVD_LOCALITY; NULL: one host */
    bool no_key;
    bool agent;     /* the parent is their agent and relays descriptors */
    int odd_key;    /* this rank has a wrong key; 0: none (rank 0 always has the right one) */
    int timeout_ms; /* time limit of mesh_create(); 0: 60 s */
    int rounds;     /* number of times that the ranks create a mesh and run body; 0: once */
    /* Runs in the rank after the cards were exchanged, before mesh_create(); may be NULL. */
    void (*met)(int rank);
    /* Runs in the rank with the mesh. Its result is the exit code. */
    int (*body)(struct mesh *mesh, void *arg);
    /* Runs in the rank instead of body when mesh_create() has failed; NULL: exit 100. */
    int (*no_mesh)(int rank, int rc, const struct err *err);
    /* Runs in the rank before it listens; may be NULL. */
    void (*before)(int rank);
    void *arg;
    int status[MESH_RANKS_MAX]; /* exit code, or -signal */
};

/* Runs all ranks, at most 200 s (then their status is -SIGALRM). */
void mesh_ranks_run(struct mesh_ranks *m);

/* Asserts that every rank has ended with this status. */
void mesh_ranks_expect(const struct mesh_ranks *m, int status);

/* For bodies: polls and drives until done(arg) is true or ms have passed. Returns 0, 1 (time), or
 * the error of the mesh. */
int mesh_ranks_until(struct mesh *mesh, bool (*done)(void *arg), void *arg, int ms, int *ret_peer,
                     struct err *err);

/* Sends a farewell, waits for those of the other ranks, then destroys the mesh. */
void mesh_ranks_leave(struct mesh *mesh);

#endif
