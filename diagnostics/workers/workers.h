/* SPDX-License-Identifier: Apache-2.0
 *
 * workers: measurements that need several machines: their differences, every path between
 * them, clocks, whether a sum has the same bits everywhere, which machine is slow. One process of
 * hvd-doctor runs on each machine (`hvdrun --doctor -H ...`); they are the ranks of one hvd job.
 * All of them call workers_measure(), which takes a few seconds, and each gets the complete answer.
 *
 * The answer is "workers" (checks/workers.c reads it). I: the rank of a worker.
 *   size
 *   worker.I.host pid port arch kernel hvd driver nccl mpi glibc gpus cpus
 *   worker.I.env       NAME=value lines of what changes a job's behaviour
 *   worker.I.nics      how many addresses others can reach, at most 8
 *   address_I.K.ip if                these addresses and their interfaces
 *   worker.I.compute_ms, memory_ms   a fixed piece of work, the median of five
 *   worker.I.tried     connections that worker I tried
 *   connect_I.K.to ip error          connections that failed
 *   pair_I.K.to ip rtt_us skew_ms small_mbs large_mbs part error   worker I was the client
 *   worker.I.differ    which sums had different bits
 *   exact.rounds bytes
 *
 * Files: measure.c (calls the others), gather.c, facts.c, serve.c (the server side), connect.c,
 * pairs.c, exact.c. One thread, besides those of serve.c.
 */
#ifndef HVD_DIAGNOSTICS_WORKERS_WORKERS_H
#define HVD_DIAGNOSTICS_WORKERS_WORKERS_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "diagnostics/machine.h"
#include "diagnostics/setting.h"

/* Collective: every rank calls it with the same arguments between hvd_init() and hvd_shutdown().
 * Adds the answer "workers" to m. say(arg, text) shows progress; NULL: no progress. */
typedef void workers_say_f(void *arg, const char *text);
int workers_measure(struct machine *m, const struct setting *s, workers_say_f *say, void *arg,
                    struct err *err);

/* ---- parts ---- */

#define WORKERS_TOKEN 16
#define WORKERS_IPS   8

/* Another worker, from its facts. */
struct workers_peer {
    int port;
    int nips;
    char ips[WORKERS_IPS][64];
};

/* Collective: concatenates the texts mine of all ranks in the order of ranks into all. */
int workers_gather(const char *name, const struct buf *mine, struct buf *all, struct err *err);

/* Writes the properties of this machine as lines of the answer. port: where serve.c listens. */
int workers_facts(struct machine *m, const struct setting *s, int rank, int port, struct buf *out,
                  struct err *err);

/* Answers connections until it is stopped (serve.c). */
struct workers_serve;
int workers_serve_start(struct workers_serve **ret, const uint8_t token[WORKERS_TOKEN],
                        struct err *err);
int workers_serve_port(const struct workers_serve *s);
void workers_serve_stop(struct workers_serve *s);

/* Connects to a worker and sends the token. Returns the descriptor, or -errno. */
int workers_dial(const char *ip, int port, const uint8_t token[WORKERS_TOKEN], int timeout_ms);

/* Makes one exchange on such a connection: sends len bytes, receives the peer's clock. 0, -errno
 * (-ETIMEDOUT). */
int workers_exchange(int fd, const void *bytes, uint32_t len, int64_t *ret_clock_ns);

/* Connects to every address of every peer once; writes a line for each failure. */
int workers_connect(const struct workers_peer *peers, int rank, int size,
                    const uint8_t token[WORKERS_TOKEN], struct buf *out);

/* Collective: runs rounds in which each worker exchanges data with one other. */
int workers_pairs(const struct workers_peer *peers, int rank, int size,
                  const uint8_t token[WORKERS_TOKEN], struct buf *out, struct err *err);

/* The opponent of rank in a round (0 to n - 2) of a round-robin tournament of n (even) places. */
int workers_opponent(int rank, int round, int n);

/* Collective: makes sums that must have the same bits on all workers. */
int workers_exact(int rank, int size, struct buf *out, struct err *err);

/* Times a fixed piece of work on this machine alone. */
void workers_compute(int rank, struct buf *out);

#endif
