/* SPDX-License-Identifier: Apache-2.0
 *
 * sock: IP addresses, this machine's interfaces, TCP sockets that listen and connect.
 *
 * Nothing here waits: sockets are nonblocking and close-on-exec, names are looked up only where it
 * is said. Any thread; the caller owns every descriptor.
 */
#ifndef HVD_BASE_SOCK_H
#define HVD_BASE_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

#define SOCK_TEXT_MAX 64
#define SOCK_HOST_MAX 256

/* An address with the network it is in. */
struct sock_addr {
    uint8_t family; /* AF_INET, AF_INET6 */
    uint8_t prefix; /* bits of the network; 0: not known */
    uint16_t port;  /* host order */
    uint8_t ip[16]; /* the first 4 for AF_INET */
};

/* "host:port" or "[v6]:port". host without brackets; port 1..65535. */
int sock_split(const char *text, char ret_host[SOCK_HOST_MAX], uint16_t *ret_port, struct err *err);

/* A numeric address, optionally "/prefix"; without one the prefix is all bits. */
int sock_parse_ip(const char *text, struct sock_addr *ret, struct err *err);

/* "10.0.0.1:7000", "[fd00::1]:7000"; without the port when it is 0. */
const char *sock_text(const struct sock_addr *a, char dst[SOCK_TEXT_MAX]);

bool sock_same_ip(const struct sock_addr *a, const struct sock_addr *b);
bool sock_is_loopback(const struct sock_addr *a);

/* b lies in the network of a. */
bool sock_in_network(const struct sock_addr *a, const struct sock_addr *b);

#define SOCK_MAX_ADDRS 8

/* Addresses others may reach this machine at, best first, at most SOCK_MAX_ADDRS: of interfaces
 * that are up, no link-local ones, loopback only when there is nothing else. spec: comma list of
 * interface names and networks ("eth1,10.0.0.0/8") that are to be used instead, in this order;
 * NULL: any. toward: a host whose route shows the best one (looked up; may be NULL or unknown). */
int sock_candidates(const char *spec, const char *toward, struct sock_addr *ret, size_t *ret_n,
                    struct err *err);

/* Every address of this machine, loopback too; how many were stored. */
size_t sock_own(struct sock_addr *ret, size_t max);

/* A listening socket; a->port 0 means any, and the one that was found is put there. Returns the
 * descriptor. */
int sock_listen(struct sock_addr *a, int backlog);

/* Starts to connect and returns the descriptor; writable or in error when it is decided. */
int sock_connect(const struct sock_addr *a);

/* 0: connected, 1: not decided yet, -errno. */
int sock_connected(int fd);

/* TCP for the data plane: no delay, cubic where the kernel lets us (bbr, a frequent default, is two
 * to three times slower within a host or a rack), keep-alive, a bound for unanswered data. Buffers
 * are left to the kernel's autotuning. */
void sock_tune(int fd);

#endif
