/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_handshake: messages of an unauthenticated peer to the acceptor and to the connector of a
 * handshake; and the card, which comes from a launcher. The first byte chooses. No input may be
 * accepted as a proof.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/transport/auth.h"
#include "core/transport/card.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t key[MAC_KEY_SIZE] = {7};

static void shake(const uint8_t *data, size_t size, bool accepts)
{
    const struct auth_id id = {.cls = 1, .epoch = 1, .size = 4, .from = 0, .to = 1};
    struct auth a;
    struct err err;
    int fd[2], rc = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) < 0)
        abort();
    if (accepts)
        auth_accept(&a, key, &id, UINT64_MAX);
    else
        auth_connect(&a, key, &id, UINT64_MAX);
    /* In two pieces. The input also chooses where to cut. */
    size_t first = size ? data[0] % (size + 1) : 0;
    for (int i = 0; i < 2 && rc == 1; i++) {
        const uint8_t *p = i ? data + first : data;
        size_t n = i ? size - first : first;
        if (n && send(fd[0], p, n, MSG_NOSIGNAL) != (ssize_t)n)
            break;
        rc = auth_progress(&a, fd[1], &err);
    }
    shutdown(fd[0], SHUT_WR);
    if (rc == 1)
        rc = auth_progress(&a, fd[1], &err);
    auth_left_politely(&a);
    if (rc >= 0)
        abort();
    close(fd[0]);
    close(fd[1]);
}

static void card(const uint8_t *data, size_t size)
{
    struct card c;
    struct buf again = {0};
    struct err err;
    if (card_decode(data, size, &c, &err) < 0)
        return;
    card_encode(&c, &again);
    if (again.len != size || memcmp(again.data, data, size) != 0)
        abort();
    card_same_host(&c, &c);
    buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 3 == 2)
        card(copy, size - 1);
    else
        shake(copy, size - 1, data[0] % 3 == 0);
    free(copy);
    return 0;
}
