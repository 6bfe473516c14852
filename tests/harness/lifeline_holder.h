/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline_holder: a child process that holds a lifeline of this process and then ends (or not) in
 * a given way, for tests of lifelines. It dies with the test.
 */
#ifndef HVD_TESTS_LIFELINE_HOLDER_H
#define HVD_TESTS_LIFELINE_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/lifeline.h"

/* The lifelines' beat; every expected event happens within SOON_MS. */
enum { BEAT_MS = 20, SOON_MS = 20000 };

/* What a holder does once it holds the lifeline. */
enum deed {
    WAIT,           /* until it is killed */
    SEGFAULT,       /* signal 11 */
    EXIT,           /* exit() without a release */
    EXIT_IN_THREAD, /* _exit() by a thread that does not hold the lifeline */
    RELEASE,        /* releases and lives on */
    EXEC,           /* exec of another program */
    FORK,           /* forks a child that ends, and lives on */
    LEAVE_MAIN,     /* the main thread ends, the process does not */
    NAMESPACE,      /* holds as process 1 of a pid namespace, then as WAIT */
};

struct holder {
    struct lifeline *l;
    pid_t pid;
    int sock; /* reads "h" when it holds the lifeline, then end of file */
};

/* Forks the holder, which waits for its lifeline. resident: bytes of memory that it fills first. */
void holder_start(struct holder *h, enum deed deed, size_t resident);

/* Creates the lifeline and gives it to the holder. Returns the holder's answer: 'h': it holds; 'n':
 * it may not create a namespace. */
char holder_give(struct holder *h);

/* holder_start() and holder_give(); asserts that it holds. */
void holder_begin(struct holder *h, enum deed deed, size_t resident);

/* Kills and reaps it; destroys the lifeline. */
void holder_end(struct holder *h);

/* Whether the lifeline reports the holder's end within ms. */
bool lifeline_told(const struct lifeline *l, int ms);

#endif
