/* SPDX-License-Identifier: Apache-2.0
 *
 * turnstile: how many requests of all jobs together are under way. Who finds no room stands in line
 * and is called when there is some; who began first goes first. So gangs are made one after the
 * other and not all of them slowly, and a crowd of jobs takes no more memory, and no more of the
 * API server, than a few. One thread.
 */
#ifndef HVD_OPERATOR_DRIVER_TURNSTILE_H
#define HVD_OPERATOR_DRIVER_TURNSTILE_H

#include <stdint.h>

#include "core/base/list.h"

struct turnstile {
    int room;
    uint64_t turns; /* that began */
    bool calling;   /* somebody of the line is being called */
    struct list line;
};

/* One who may stand in line. call(): there is room; he passes until he is refused or has nothing
 * more to send, and then steps aside. */
struct turn {
    void (*call)(void *arg);
    void *arg;
    uint64_t number;
    struct list node;
};

void turnstile_init(struct turnstile *t, int room);
void turnstile_begin(struct turnstile *t, struct turn *turn, void (*call)(void *arg), void *arg);

/* True: one request may go, and turnstile_leave() follows when it has ended. False: he stands in
 * line now. */
bool turnstile_pass(struct turnstile *t, struct turn *turn);
void turnstile_leave(struct turnstile *t);

/* He wants nothing more, or not now. */
void turn_step_aside(struct turn *turn);

#endif
