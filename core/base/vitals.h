/* SPDX-License-Identifier: Apache-2.0
 *
 * vitals: is a process of this host that has gone silent to be waited for or given up?
 *
 * A process that is stopped will not come back by itself: it is given up as soon as it is silent.
 * One that wants to run and cannot (a busy host, a slow device, a processor quota) is waited for,
 * but not for ever. What /proc says is read here, the decision is pure. Called by the agent.
 */
#ifndef HVD_BASE_VITALS_H
#define HVD_BASE_VITALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct vitals {
    char state;     /* of its main thread, as in /proc/PID/stat: R S D T t Z X I; 0: unknown */
    bool stopped;   /* every thread of it is (T, t) */
    bool throttled; /* its processor quota has run out since the look before: the caller fills it */
};

/* How long a process may be silent. */
struct vitals_limits {
    uint64_t silent_ns; /* until it is asked after */
    uint64_t evict_ns;  /* until it is given up whatever the reason */
};

enum vitals_verdict { VITALS_ALIVE, VITALS_SUSPECT, VITALS_EVICT };

/* Three beats, at least 300 ms; 10 s, or twice that where beats are rare. */
struct vitals_limits vitals_limits(int beat_ms);

enum vitals_verdict vitals_judge(uint64_t silence_ns, const struct vitals *v,
                                 const struct vitals_limits *limits);

/* The state in a line of /proc/PID/stat, 0: it is none. The name in it is the process's own choice.
 */
char vitals_parse(const char *stat);

/* -ESRCH: there is no such process; it is Z when it has not been reaped. */
int vitals_read(pid_t pid, struct vitals *ret);

/* "stopped (state T)", "running or wanting to (state R), out of its processor quota". */
const char *vitals_text(const struct vitals *v, char *buf, size_t size);

#endif
