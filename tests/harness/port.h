/* SPDX-License-Identifier: Apache-2.0
 *
 * port: finds a free port to listen at, below the kernel's ephemeral range, so that no other
 * connection or listener takes it meanwhile.
 */
#ifndef HVD_TESTS_HARNESS_PORT_H
#define HVD_TESTS_HARNESS_PORT_H

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/rank.h"

#define PORT_LEAST 10000
#define PORT_MOST  30000
#define PORT_TRIES 100

/* A free port, or -errno. */
static inline int port_free(void)
{
    uint64_t seed = clock_ns() ^ (uint64_t)getpid() << 32;
    int rc = -EADDRINUSE;
    for (int i = 0; i < PORT_TRIES; i++) {
        auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int port = PORT_LEAST + (int)(rank_random(&seed) % (PORT_MOST - PORT_LEAST));
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return port;
        rc = -errno;
    }
    return rc;
}

#endif
