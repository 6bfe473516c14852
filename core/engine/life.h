/* SPDX-License-Identifier: Apache-2.0
 *
 * life: creates and ends the engine of this process, between hvd_init() and hvd_shutdown(), gives
 * calls access to it, and handles fork(). Called by api.c on any thread of the user.
 *
 * A joiner of an elastic job whose other ranks train has only provisional numbers (rank and size)
 * at first: hvd_init() returns at once, and the first call that needs other ranks creates the
 * engine and waits for admission. Until then the process has the agent's socket and its lifeline,
 * but no thread and no listener.
 */
#ifndef HVD_ENGINE_LIFE_H
#define HVD_ENGINE_LIFE_H

#include <stdbool.h>

#include "core/base/err.h"

struct engine;
struct world;

int life_init(struct err *err);

/* Also ends another thread's wait for admission. */
int life_shutdown(struct err *err);

/* True between life_init() and life_shutdown(). */
bool life_is_on(void);

/* Begins a call: the engine exists until life_end(). A joiner that is not admitted yet waits for
 * admission first; *ret_moved, if ret_moved is not NULL, then says whether its rank or size differ
 * from the provisional ones. Returns NULL when there is no engine; life_end() must not be called
 * then. */
struct engine *life_begin(bool *ret_moved, struct err *err);

/* Like life_begin(), without waiting for admission. Returns 0: *ret_engine is NULL when this rank
 * is not admitted yet, *ret_world is the world of the last boundary or has the provisional numbers,
 * and the caller must call life_end(). Negative on error, then life_end() must not be called. */
int life_peek(struct engine **ret_engine, struct world *ret_world, struct err *err);

void life_end(void);

/* Stores the path of a timeline (NULL: none) to open on admission. Returns 1 when stored, 0 when
 * this rank is admitted already or hvd_init() was not called. */
int life_note_timeline(const char *path, bool mark_cycles, struct err *err);

#endif
