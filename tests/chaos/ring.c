/* SPDX-License-Identifier: Apache-2.0
 *
 * ring: see ring.h.
 */
#include "tests/chaos/ring.h"

#include <errno.h>
#include <string.h>

#include <hvd.h>

enum { RING_TAG = 17, RING_MOST = 1200000 };

static size_t size_of(uint64_t step)
{
    static const size_t sizes[] = {8, 5000, 16384, 40000, RING_MOST};
    return sizes[step % 5];
}

/* The word at its beginning, and the bytes behind it. */
static void fill(uint8_t *data, uint64_t step, int rank)
{
    uint64_t word = step << 16 | (uint64_t)rank;
    memset(data, (int)(step * 31 + (uint64_t)rank), size_of(step));
    memcpy(data, &word, sizeof(word));
}

int ring_pass(uint64_t step, int rank, int size)
{
    static uint8_t out[RING_MOST], in[RING_MOST], want[RING_MOST];
    struct hvd_message m[2] = {{.direction = HVD_SEND,
                                .peer = (rank + 1) % size,
                                .tag = RING_TAG,
                                .device = -1,
                                .data = out,
                                .bytes = (int64_t)size_of(step)}};
    hvd_handle h[2];
    m[1] = m[0];
    m[1].direction = HVD_RECV;
    m[1].peer = (rank + size - 1) % size;
    m[1].data = in;
    fill(out, step, rank);
    fill(want, step, m[1].peer);
    int rc = hvd_exchange(m, 2, h);
    if (rc < 0)
        return rc;
    int sent = hvd_wait(h[0]), got = hvd_wait(h[1]);
    if (sent < 0 && sent != -EOWNERDEAD)
        return sent;
    if (got < 0)
        return got == -EOWNERDEAD ? 0 : got;
    return memcmp(in, want, size_of(step)) == 0 ? 0 : -EBADMSG;
}
