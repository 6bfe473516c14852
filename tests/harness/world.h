/* SPDX-License-Identifier: Apache-2.0
 *
 * world: forks the ranks of a test. Each is a process with HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS and
 * HVD_KEY_FILE set, on this host or spread over network namespaces that stand for hosts. The parent
 * waits, bounded; ranks die with it, and what was made on this machine goes even when the parent is
 * killed (tests/harness/sweeper). Used by tests only, from one thread.
 */
#ifndef HVD_TESTS_HARNESS_WORLD_H
#define HVD_TESTS_HARNESS_WORLD_H

#include <stdbool.h>
#include <sys/types.h>

/* What a rank runs: hvd_init() and hvd_shutdown() are its own business. Returns its exit code, 0 is
 * good. No cmocka asserts in it. arg is the parent's memory as of the fork; to bring something
 * back, use world_shared(). */
typedef int (*world_rank_f)(int rank, int size, void *arg);

struct world_options {
    int size;
    int hosts;     /* 0, 1: loopback; n: n network namespaces joined by a bridge, ranks in blocks of
                      size / hosts (the first size % hosts get one more) */
    int timeout_s; /* all ranks are killed then; 0: 200 */
    const char *shape;      /* with hosts: what follows "tc qdisc add dev X root", NULL: nothing */
    const char *const *env; /* "NAME=value" for every rank, ends with NULL; may be NULL */
};

struct world;

/* 0, or -ENOTSUP when there are no network namespaces here (not root, no ip). */
int world_start(const struct world_options *options, world_rank_f fn, void *arg,
                struct world **ret);

int world_kill(const struct world *w, int rank, int sig);

/* Waits for every rank, ends what is left when time is up, removes all there was. *ret_status (may
 * be NULL): [size] of waitpid(2). Returns how many ranks did not exit with 0. */
int world_wait(struct world *w, int *ret_status);

/* Start and wait, on loopback; what a rank returned other than 0 is printed. */
int world_run(int size, world_rank_f fn, void *arg);
int world_run_options(const struct world_options *options, world_rank_f fn, void *arg);

/* True when namespaces can be made; else prints "SKIP: <id>: root: ..." and returns false. */
bool world_can_netns(const char *test_id);

/* Zeroed memory that parent and ranks share; lives as long as the process. */
void *world_shared(size_t size);

#endif
