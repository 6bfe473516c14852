/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_messages: messages between two ranks through the public C API. Started like any rank.
 *
 *     bench_messages [-t MILLISECONDS a size] [-n] BYTES...
 *
 * Rank 0 prints a line for each size: "bytes calls latency_ns rate": half the median time of a
 * message there and back, in blocking calls; and bytes/s of several messages in flight, of which
 * the last is answered. -n: "bytes in calls ns 0", the time of each message of those.
 */
#include <hvd.h>

#include "tests/bench/bench_messages.h"

static int failed(int rc)
{
    if (rc != 0)
        fprintf(stderr, "bench_messages: %s\n", hvd_error());
    return rc;
}

static int ping(const struct bench *b, size_t bytes)
{
    int rc = b->rank == 0 ? hvd_send(b->data, (int64_t)bytes, 1, 1, 0)
                          : hvd_recv(b->data, (int64_t)bytes, 0, 1, 0, NULL);
    if (rc == 0)
        rc = b->rank == 0 ? hvd_recv(b->data, (int64_t)bytes, 1, 1, 0, NULL)
                          : hvd_send(b->data, (int64_t)bytes, 0, 1, 0);
    return failed(rc);
}

static int stream(const struct bench *b, size_t bytes)
{
    struct hvd_message m[WINDOW];
    hvd_handle handles[WINDOW];
    char done = 0;
    int window = window_of(bytes);
    for (int i = 0; i < window; i++)
        m[i] = (struct hvd_message){.direction = b->rank == 0 ? HVD_SEND : HVD_RECV,
                                    .peer = 1 - b->rank,
                                    .tag = 2,
                                    .device = -1,
                                    .data = b->data + (size_t)i * bytes,
                                    .bytes = (int64_t)bytes};
    int rc = hvd_exchange(m, (size_t)window, handles);
    for (int i = 0; i < window && rc == 0; i++)
        rc = hvd_wait(handles[i]);
    if (rc == 0)
        rc = b->rank == 0 ? hvd_recv(&done, 1, 1, 3, 0, NULL) : hvd_send(&done, 1, 0, 3, 0);
    return failed(rc);
}

static int agree(int64_t *calls)
{
    return failed(hvd_allreduce("calls", calls, calls, 1, HVD_INT64, HVD_MIN));
}

int main(int argc, char **argv)
{
    struct bench b = {.ping = ping, .stream = stream, .agree = agree};
    if (hvd_init() != 0 || hvd_size() != 2) {
        fprintf(stderr, "bench_messages is for two ranks: %s\n", hvd_error());
        return 1;
    }
    b.rank = hvd_rank();
    int rc = bench_messages(&b, argc, argv);
    return hvd_shutdown() != 0 || rc;
}
