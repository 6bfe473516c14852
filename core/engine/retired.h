/* SPDX-License-Identifier: Apache-2.0
 *
 * retired: the devices (backend/device.h) of sets that were removed. Destroying one frees memory of
 * the GPU, which waits for all work there, and that may be operations of other sets which wait for
 * other ranks. So they are destroyed when this rank has no operation on the GPU. Under the progress
 * lock.
 */
#ifndef HVD_ENGINE_RETIRED_H
#define HVD_ENGINE_RETIRED_H

#include <stddef.h>

struct device;
struct engine;

struct retired {
    struct device **list; /* [n] */
    size_t n;
};

/* Takes over a device that no coll uses any more, and that has no operation in flight, unless the
 * engine ends. NULL is allowed. */
void retired_add(struct engine *e, struct device *device);

/* Destroys all if this rank has nothing on the GPU. Cheap if there is none. */
void retired_bury(struct engine *e);

/* The engine ends: destroys all. */
void retired_fini(struct retired *r);

#endif
