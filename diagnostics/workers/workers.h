/* SPDX-License-Identifier: Apache-2.0
 *
 * workers: what only several machines together can tell: their differences, every path between
 * them, clocks, whether a sum has the same bits everywhere, which one is slow. One process of
 * hvd-doctor runs on each machine (`hvdrun --doctor -H ...`), joined by hvd.h; all of them call
 * workers_measure(), which takes a few seconds, and all get the whole answer.
 *
 * The answer is "workers" (checks/workers.c reads it). I: the rank of a worker.
 *   size
 *   worker.I.host pid arch kernel hvd driver nccl mpi glibc gpus cpus clock
 *   worker.I.env       NAME=value lines of what changes a job's behaviour
 *   worker.I.nics      how many interfaces others can reach
 *   worker.I.compute_ms, memory_ms   a fixed piece of work, the median of five
 *   worker.I.tried     connections it tried
 *   connect_I.K.to ip error          those that failed
 *   pair_I.K.to ip rtt_us skew_ms small_mbs large_mbs error   of rounds in which I was the client
 *   worker.I.differ    what it saw of sums that did not have the same bits
 *   exact.rounds bytes
 *
 * Files: measure.c (all of it), gather.c (texts of all), facts.c, serve.c (the side that answers),
 * connect.c, pairs.c, exact.c. One thread, besides those of serve.c.
 */
#ifndef HVD_DIAGNOSTICS_WORKERS_WORKERS_H
#define HVD_DIAGNOSTICS_WORKERS_WORKERS_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "diagnostics/machine.h"
#include "diagnostics/setting.h"

/* Between hvd_init() and hvd_shutdown(), on every rank, with the same arguments: adds the answer to
 * m. say(arg, text): progress, NULL for none. */
typedef void workers_say_f(void *arg, const char *text);
int workers_measure(struct machine *m, const struct setting *s, workers_say_f *say, void *arg,
                    struct err *err);

/* ---- parts ---- */

#define WORKERS_TOKEN 16
#define WORKERS_IPS   8

/* Another worker, as its facts tell. */
struct workers_peer {
    int port;
    int nips;
    char ips[WORKERS_IPS][64];
};

/* The concatenated texts of all ranks, in their order. mine is read. */
int workers_gather(const char *name, const struct buf *mine, struct buf *all, struct err *err);

/* What this machine is, as lines of the answer; port: where serve.c listens. */
int workers_facts(struct machine *m, const struct setting *s, int rank, int port, struct buf *out,
                  struct err *err);

/* serve.c: answers connections until it is stopped. */
struct workers_serve;
int workers_serve_start(struct workers_serve **ret, const uint8_t token[WORKERS_TOKEN],
                        struct err *err);
int workers_serve_port(const struct workers_serve *s);
void workers_serve_stop(struct workers_serve *s);

/* A connection to a worker that has shown the token: the descriptor, or -errno. */
int workers_dial(const char *ip, int port, const uint8_t token[WORKERS_TOKEN], int timeout_ms);

/* One exchange on such a connection: len bytes there, its clock back. 0, -errno (-ETIMEDOUT). */
int workers_exchange(int fd, const void *bytes, uint32_t len, int64_t *ret_clock_ns);

/* Every address of every peer once; failures become lines. */
int workers_connect(const struct workers_peer *peers, int rank, int size,
                    const uint8_t token[WORKERS_TOKEN], struct buf *out);

/* Rounds in which each worker talks to one other. Collective. */
int workers_pairs(const struct workers_peer *peers, int rank, int size,
                  const uint8_t token[WORKERS_TOKEN], struct buf *out, struct err *err);

/* Whom rank meets in a round (from 0, n - 1 of them) of a circle tournament of n (even) places. */
int workers_opponent(int rank, int round, int n);

/* Collective: sums that must have the same bits everywhere. */
int workers_exact(int rank, int size, struct buf *out, struct err *err);

/* A fixed piece of work, on this machine alone. */
void workers_compute(int rank, struct buf *out);

#endif
