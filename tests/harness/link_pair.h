/* SPDX-License-Identifier: Apache-2.0
 *
 * link_pair: two ends of a link in one process, over a real TCP connection on loopback with small
 * buffers, so that transfers stop in the middle. Rank 0 is end a, rank 1 end b. For tests, one
 * thread; an error during setup ends the test program.
 */
#ifndef HVD_TESTS_HARNESS_LINK_PAIR_H
#define HVD_TESTS_HARNESS_LINK_PAIR_H

#include <stdint.h>

#include "core/transport/link_private.h"

/* One end, with the parts of a mesh that a link needs. */
struct link_side {
    struct mesh mesh;
    struct mesh_net net;
    struct link *links[2 * LINK_CLASSES];
    bool left[2];
    struct link *link;
};

struct link_pair {
    struct link_side a, b;
};

/* Creates a connected pair. */
void link_pair_init(struct link_pair *p, enum link_class cls);
void link_pair_fini(struct link_pair *p);

/* Like link_pair_init(), but creates links without a connection, and two sockets for
 * link_established(). */
void link_pair_init_apart(struct link_pair *p, enum link_class cls, int ret_fds[2]);

/* Makes progress at both ends. Returns 0 or the first error. */
int link_pair_turn(struct link_pair *p);

void link_pair_next_generation(struct link_pair *p);

/* n pseudo-random bytes of this seed, and room for one more. The caller frees them. */
uint8_t *link_pair_bytes(size_t n, unsigned seed);

#endif
