/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p_links: links in memory for tests of core/p2p, in place of those of core/transport: they have
 * little room, and take and give bytes in pieces of random sizes. For one file of a test.
 */
#ifndef HVD_TESTS_HARNESS_P2P_LINKS_H
#define HVD_TESTS_HARNESS_P2P_LINKS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/transport/link.h"
#include "core/transport/mesh.h"
#include "tests/harness/rank.h"

enum { P2P_LINKS_RANKS = 5, P2P_LINKS_WIDE = 400000 /* bytes */, LINK_HEADER = 16 };

struct link {
    uint8_t bytes[P2P_LINKS_WIDE];
    size_t n;
};

static struct {
    struct link of[P2P_LINKS_RANKS][P2P_LINKS_RANKS]; /* from, to */
    size_t capacity;                                  /* bytes of a link */
    uint64_t *random;                                 /* the test's */
} p2p_links;

static int any_of(int n)
{
    return (int)(rank_random(p2p_links.random) % (uint64_t)n);
}

struct link *mesh_link(struct mesh *mesh, int peer, enum link_class cls)
{
    return cls == LINK_SEND ? &p2p_links.of[mesh->rank][peer] : &p2p_links.of[peer][mesh->rank];
}

struct link *mesh_incoming(struct mesh *mesh, int peer)
{
    struct link *link = &p2p_links.of[peer][mesh->rank];
    return link->n > 0 ? link : NULL;
}

bool mesh_has_left(const struct mesh *mesh, int rank)
{
    (void)mesh, (void)rank;
    return false;
}

void xfer_start(struct xfer *x, struct link *link, uint64_t tag, void *data, size_t len)
{
    *x = (struct xfer){.link = link, .tag = tag, .data = data, .len = len};
    memcpy(x->header, &tag, 8);
    memcpy(x->header + 8, &x->len, 8);
}

static size_t put(struct link *link, const uint8_t *from, size_t n)
{
    size_t room = p2p_links.capacity - link->n;
    n = n < room ? n : room;
    n = n > 0 && any_of(4) == 0 ? (size_t)any_of((int)n) + 1 : n;
    if (n > 0)
        memcpy(link->bytes + link->n, from, n);
    link->n += n;
    return n;
}

int xfer_send(struct xfer *x, size_t ready)
{
    if (ready != x->len)
        abort();
    if (x->header_done < LINK_HEADER)
        x->header_done += put(x->link, x->header + x->header_done, LINK_HEADER - x->header_done);
    if (x->header_done < LINK_HEADER)
        return 1;
    if (x->done < x->len)
        x->done += put(x->link, x->data + x->done, x->len - x->done);
    return x->done < x->len;
}

static size_t take(struct link *link, uint8_t *to, size_t n)
{
    n = n < link->n ? n : link->n;
    n = n > 0 && any_of(4) == 0 ? (size_t)any_of((int)n) + 1 : n;
    if (n > 0)
        memcpy(to, link->bytes, n);
    memmove(link->bytes, link->bytes + n, link->n - n);
    link->n -= n;
    return n;
}

int xfer_recv(struct xfer *x)
{
    if (x->done < x->len)
        x->done += take(x->link, x->data + x->done, x->len - x->done);
    return x->done < x->len;
}

/* The header is taken off here: the next call for this link is that for the rest of the frame. */
int link_peek(struct link *link, uint64_t *ret_tag, uint64_t *ret_len)
{
    if (link->n < LINK_HEADER)
        return 1;
    memcpy(ret_tag, link->bytes, 8);
    memcpy(ret_len, link->bytes + 8, 8);
    memmove(link->bytes, link->bytes + LINK_HEADER, link->n - LINK_HEADER);
    link->n -= LINK_HEADER;
    return 0;
}

#endif
