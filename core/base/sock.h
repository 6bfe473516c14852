/* SPDX-License-Identifier: Apache-2.0
 *
 * sock: IP addresses, this machine's interfaces, TCP sockets that listen and connect.
 *
 * Nothing here waits: sockets are nonblocking and close-on-exec. Only sock_candidates() looks names
 * up. Any thread; the caller owns every descriptor.
 */
#ifndef HVD_BASE_SOCK_H
#define HVD_BASE_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

#define SOCK_TEXT_MAX 64
#define SOCK_HOST_MAX 256

/* An address with the prefix length of its network. */
struct sock_addr {
    uint8_t family; /* AF_INET, AF_INET6 */
    uint8_t prefix; /* bits of the network part; 0: unknown */
    uint16_t port;  /* host order */
    uint8_t ip[16]; /* the first 4 for AF_INET */
};

/* Parses "host:port" or "[v6]:port". ret_host has no brackets; the port is 1..65535. */
int sock_split(const char *text, char ret_host[SOCK_HOST_MAX], uint16_t *ret_port, struct err *err);

/* A numeric address, optionally "/prefix". Without a prefix, all bits count. */
int sock_parse_ip(const char *text, struct sock_addr *ret, struct err *err);

/* Writes "10.0.0.1:7000" or "[fd00::1]:7000"; without the port when it is 0. Returns dst. */
const char *sock_text(const struct sock_addr *a, char dst[SOCK_TEXT_MAX]);

bool sock_same_ip(const struct sock_addr *a, const struct sock_addr *b);
bool sock_is_loopback(const struct sock_addr *a);

/* Returns whether b is in the network of a. */
bool sock_in_network(const struct sock_addr *a, const struct sock_addr *b);

#define SOCK_MAX_ADDRS 8

/* Addresses at which others may reach this machine, best first, at most SOCK_MAX_ADDRS: of
 * interfaces that are up, without link-local ones; loopback only when there is nothing else. spec:
 * a comma list of interface names and networks ("eth1,10.0.0.0/8") to use instead, in this order;
 * NULL: any. toward: a host name; the address that the route to it uses is the best one. It is
 * looked up and may be NULL or unknown. */
int sock_candidates(const char *spec, const char *toward, struct sock_addr *ret, size_t *ret_n,
                    struct err *err);

/* Stores every address of this machine, loopback too. Returns how many were stored. */
size_t sock_own(struct sock_addr *ret, size_t max);

/* Makes a listening socket and returns it. Port 0 means any: a->port becomes the chosen one. */
int sock_listen(struct sock_addr *a, int backlog);

/* Starts to connect and returns the descriptor, which polls writable or in error when the attempt
 * has ended. */
int sock_connect(const struct sock_addr *a);

/* 0: connected; 1: still connecting; -errno. */
int sock_connected(int fd);

/* Options for the data plane's TCP: no delay; cubic where the kernel permits it (bbr, often the
 * default, is two to three times slower within a host or a rack); keep-alive; a limit for
 * unacknowledged data. Buffer sizes are left to the kernel's autotuning. */
void sock_tune(int fd);

#endif
