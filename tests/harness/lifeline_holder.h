/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline_holder: a child that holds a lifeline of this process and then does what it is told, for
 * the tests of lifelines. It dies with the test.
 */
#ifndef HVD_TESTS_LIFELINE_HOLDER_H
#define HVD_TESTS_LIFELINE_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/lifeline.h"

/* A beat of the lifelines; what happens at all happens within SOON_MS. */
enum { BEAT_MS = 20, SOON_MS = 20000 };

/* What a holder does once it holds. */
enum deed {
    WAIT,           /* until it is killed */
    SEGFAULT,       /* signal 11 */
    EXIT,           /* exit() without a release */
    EXIT_IN_THREAD, /* _exit() by another thread than the one that has held */
    RELEASE,        /* and live on */
    EXEC,           /* another program */
    FORK,           /* a child that ends, and live on */
    LEAVE_MAIN,     /* the main thread ends, the process does not */
    NAMESPACE,      /* holds as process 1 of a pid namespace; WAIT then */
};

struct holder {
    struct lifeline *l;
    pid_t pid;
    int sock; /* reads "h" when it holds, then the end */
};

/* Forks the holder; it waits for its lifeline. resident: bytes of memory it fills first. */
void holder_start(struct holder *h, enum deed deed, size_t resident);

/* Makes the lifeline and gives it to the holder. What that says: 'h', it holds; 'n', it may not
 * have a namespace. */
char holder_give(struct holder *h);

/* Both; asserts that it holds. */
void holder_begin(struct holder *h, enum deed deed, size_t resident);

/* Kills and reaps it; destroys the lifeline. */
void holder_end(struct holder *h);

/* Does the lifeline tell the end of it within ms? */
bool lifeline_told(const struct lifeline *l, int ms);

#endif
