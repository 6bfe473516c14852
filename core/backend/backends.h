/* SPDX-License-Identifier: Apache-2.0
 *
 * backends: the back ends of one engine, from what the user wants (HVD_BACKEND) to what is open.
 *
 *     backends_early()   before the launcher is looked for
 *     backends_say()     what this rank wants and has, in front of its card
 *     backends_hear()    what all ranks have said, off their cards: the choice
 *     backends_enter()   on the mesh: opens them, once, and each adds its algorithms to the coll
 *     backends_close()   when all colls are gone
 *
 * One struct an engine; the three in the middle again for each epoch. Called inside hvd_init() and
 * under the progress lock.
 */
#ifndef HVD_BACKEND_BACKENDS_H
#define HVD_BACKEND_BACKENDS_H

#include "core/backend/backend.h"
#include "core/backend/choice.h"

/* Names of the table, the host first; ends with NULL. */
extern const char *const backend_names[];

struct backends {
    struct backend_wish wish; /* filled in by the caller */
    struct backend_choice choice;
    bool said;             /* the choice of this process was told in the log */
    struct device *device; /* for tensors of GPUs; NULL: not entered yet */
    bool left;             /* a library still uses the memory of an operation: it is not freed */
    int n;
    struct {
        const struct backend_ops *ops;
        void *state;
    } open[BACKENDS_MAX];
};

/* Loads MPI where it is wanted: an Open MPI may bring a libpmix.so.2 of its own, and the loader
 * gives it the first of that name, which is to be its own and not the one of boot/pmix. What fails
 * is said by backends_say(). */
void backends_early(const struct backend_wish *wish);

/* -ENOTSUP: elastic, and it cannot be. */
int backends_say(const struct backends *b, bool elastic, struct buf *out, struct err *err);

/* cards: [size]. */
int backends_hear(struct backends *b, struct buf *cards, int size, struct err *err);

/* joined: this rank has come to others, who were there. */
int backends_enter(struct backends *b, struct coll *coll, bool joined, uint64_t deadline,
                   struct err *err);
void backends_close(struct backends *b, bool lost);

/* What hvd_backend() tells of the one of this name; b NULL: none is open. -EINVAL. */
int backends_tell(const struct backends *b, const char *name, struct hvd_backend *ret,
                  struct err *err);

/* Of one for tensors of GPUs that is not open: is what it needs here? Its libraries are loaded, no
 * GPU is touched. Any thread, without the progress lock. */
void backends_probe(const char *name, struct hvd_backend *ret);

#endif
