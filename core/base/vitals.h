/* SPDX-License-Identifier: Apache-2.0
 *
 * vitals: should the agent wait for a silent process of this host, or evict it?
 *
 * A stopped process (SIGSTOP) does not continue by itself: it is evicted as soon as it is silent. A
 * process that wants to run and cannot (a busy host, a slow device, a CPU quota) is waited for, but
 * not for ever. vitals_read() reads /proc, the decision is pure. Called by the agent.
 */
#ifndef HVD_BASE_VITALS_H
#define HVD_BASE_VITALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct vitals {
    char state;     /* of the main thread, as in /proc/PID/stat: R S D T t Z X I; 0: unknown */
    bool stopped;   /* all its threads are stopped (T, t) */
    bool throttled; /* the process's CPU quota has run out since the caller last looked; set by the
                       caller */
};

/* Limits for the silence of a process. */
struct vitals_limits {
    uint64_t silent_ns; /* longer: VITALS_SUSPECT */
    uint64_t evict_ns;  /* longer: VITALS_EVICT, whatever the reason */
};

enum vitals_verdict { VITALS_ALIVE, VITALS_SUSPECT, VITALS_EVICT };

/* silent_ns: three beats, at least 300 ms. evict_ns: 10 s, at least twice silent_ns. */
struct vitals_limits vitals_limits(int beat_ms);

enum vitals_verdict vitals_judge(uint64_t silence_ns, const struct vitals *v,
                                 const struct vitals_limits *limits);

/* The state in the text of /proc/PID/stat, 0: not such a text. The process chooses the name in it,
 * which is skipped. */
char vitals_parse(const char *stat);

/* -ESRCH: no such process. State Z: it has ended and its parent has not waited for it yet. */
int vitals_read(pid_t pid, struct vitals *ret);

/* Describes v in buf, and returns buf: "stopped (state T)", "running, or wanting to (state R), out
 * of its processor quota". */
const char *vitals_text(const struct vitals *v, char *buf, size_t size);

#endif
