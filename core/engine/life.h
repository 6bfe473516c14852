/* SPDX-License-Identifier: Apache-2.0
 *
 * life: the engine of this process between hvd_init() and hvd_shutdown(): who makes and ends it,
 * how calls get hold of it, what fork() does. api.c calls it, any thread of the user.
 *
 * A rank that comes to an elastic job while others train has only a place at first: hvd_init() has
 * returned, and the first call that needs the others makes the engine and waits until they let it
 * in. Until then the process has the agent's socket and its lifeline, no thread and no listener.
 */
#ifndef HVD_ENGINE_LIFE_H
#define HVD_ENGINE_LIFE_H

#include <stdbool.h>

#include "core/base/err.h"

struct engine;
struct world;

int life_init(struct err *err);

/* Ends a wait of another thread to come in. */
int life_shutdown(struct err *err);

/* Between life_init() and life_shutdown(). */
bool life_is_on(void);

/* Counts this call in: the engine stays until life_end(). Comes in first where this rank has only a
 * place: ret_moved, if not NULL, says whether rank or size are others than those that the place
 * had. NULL: there is no engine; there is nothing to end then. */
struct engine *life_begin(bool *ret_moved, struct err *err);

/* The same without coming in: *ret_engine is NULL where there is only a place. The world is of the
 * last boundary, or that place. The engine stays until life_end(), which is due when this returns
 * 0. */
int life_look(struct engine **ret_engine, struct world *ret_world, struct err *err);

void life_end(void);

/* A timeline (NULL: none) for when this rank comes in. 1: noted; 0: it is in already, or not even
 * on its way. */
int life_note_timeline(const char *path, bool mark_cycles, struct err *err);

#endif
