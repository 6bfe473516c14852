/* SPDX-License-Identifier: Apache-2.0
 *
 * world: forks the ranks of a test. Each is a process with HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS and
 * HVD_KEY_FILE set, on this host or in network namespaces that stand for hosts. The parent waits,
 * with a time limit. Ranks die with the parent, and everything created on this machine is removed
 * even when the parent is killed (tests/harness/sweeper). Tests only, one thread.
 */
#ifndef HVD_TESTS_HARNESS_WORLD_H
#define HVD_TESTS_HARNESS_WORLD_H

#include <stdbool.h>
#include <sys/types.h>

/* A rank's program, which calls hvd_init() and hvd_shutdown() itself. Returns its exit code, 0 is
 * good. It must not use cmocka asserts. arg: a copy of the parent's memory as of the fork; use
 * world_shared() to return data. */
typedef int (*world_rank_f)(int rank, int size, void *arg);

struct world_options {
    int size;
    /* 0, 1: loopback; n: n network namespaces joined by a bridge, with blocks of size / hosts ranks
     * (the first size % hosts get one more). */
    int hosts;
    int timeout_s;          /* all ranks are killed after so many seconds; 0: 200 */
    const char *shape;      /* with hosts: arguments after "tc qdisc add dev X root", NULL: none */
    unsigned delay_us;      /* with hosts: each packet arrives so late (tests/harness/wire) */
    const char *const *env; /* "NAME=value" for every rank, ends with NULL; may be NULL */
};

struct world;

/* Returns 0, or -ENOTSUP when network namespaces cannot be created (not root, or no ip command). */
int world_start(const struct world_options *options, world_rank_f fn, void *arg,
                struct world **ret);

int world_kill(const struct world *w, int rank, int sig);

/* Waits for every rank, kills remaining ranks at the time limit, and removes everything created.
 * *ret_status (may be NULL): [size] as of waitpid(2). Returns the number of ranks that did not exit
 * with 0. */
int world_wait(struct world *w, int *ret_status);

/* Start a world (world_run(): on loopback), wait for it, and print exit codes other than 0. Return
 * the number of ranks that did not exit with 0. */
int world_run(int size, world_rank_f fn, void *arg);
int world_run_options(const struct world_options *options, world_rank_f fn, void *arg);

/* Returns true when namespaces can be created; else prints "SKIP: <id>: root: ..." and returns
 * false. */
bool world_can_netns(const char *test_id);

/* Zeroed memory shared by parent and ranks; lives as long as the process. */
void *world_shared(size_t size);

/* Shared memory for one job after the other: the same memory at each call with this size, zeroed
 * again. NULL without memory. */
void *world_board(size_t size);

#endif
