/* SPDX-License-Identifier: Apache-2.0
 *
 * vitals: see vitals.h.
 */
#include "core/base/vitals.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"

#define SILENT_BEATS  3
#define SILENT_MIN_NS (300 * CLOCK_MS)
#define EVICT_NS      (10 * CLOCK_S)
#define STAT_MAX      4096

struct vitals_limits vitals_limits(int beat_ms)
{
    struct vitals_limits l = {SILENT_BEATS * (uint64_t)beat_ms * CLOCK_MS, EVICT_NS};
    if (l.silent_ns < SILENT_MIN_NS)
        l.silent_ns = SILENT_MIN_NS;
    if (l.evict_ns < 2 * l.silent_ns)
        l.evict_ns = 2 * l.silent_ns;
    return l;
}

enum vitals_verdict vitals_judge(uint64_t silence_ns, const struct vitals *v,
                                 const struct vitals_limits *limits)
{
    if (silence_ns <= limits->silent_ns)
        return VITALS_ALIVE;
    if (v->stopped || v->state == 'Z' || v->state == 'X' || silence_ns > limits->evict_ns)
        return VITALS_EVICT;
    return VITALS_SUSPECT;
}

char vitals_parse(const char *stat)
{
    /* "71 (a name) with ) in it) S 1 ...": the process chooses its name, the kernel writes what
     * follows the last parenthesis. */
    const char *end = strrchr(stat, ')');
    if (!end || end[1] != ' ' || end[2] == '\0' || end[3] != ' ' || !strchr("RSDTtZXxKWPI", end[2]))
        return 0;
    return end[2] == 'x' ? 'X' : end[2];
}

static char read_state(const char *path)
{
    auto_free char *text = NULL;
    return fd_read_file(path, STAT_MAX, &text, NULL) < 0 ? 0 : vitals_parse(text);
}

static bool is_stop(char state)
{
    return state == 'T' || state == 't';
}

/* A process with one running thread is not stopped: a debugger or a profiler may hold a thread for
 * a moment. */
static bool all_stopped(pid_t pid)
{
    char path[64 + 256];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return false;
    bool all = true;
    struct dirent *e;
    while (all && (e = readdir(dir))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, e->d_name);
        char state = read_state(path);
        all = is_stop(state) || state == 0 || state == 'Z' || state == 'X'; /* 0: it has ended */
    }
    closedir(dir);
    return all;
}

int vitals_read(pid_t pid, struct vitals *ret)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (pid <= 0 || access(path, F_OK) < 0)
        return -ESRCH;
    struct vitals v = {.state = read_state(path)};
    v.stopped = is_stop(v.state) && all_stopped(pid);
    *ret = v;
    return 0;
}

const char *vitals_text(const struct vitals *v, char *buf, size_t size)
{
    static const struct {
        char state;
        const char *text;
    } words[] = {{'R', "running, or wanting to"},
                 {'S', "asleep"},
                 {'D', "waiting for a device"},
                 {'T', "stopped"},
                 {'t', "stopped by a debugger"},
                 {'Z', "a zombie"},
                 {'X', "dead"}};
    const char *text = "in a state unknown to us";
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (words[i].state == v->state)
            text = words[i].text;
    snprintf(buf, size, "%s (state %c)%s", text, v->state ? v->state : '?',
             v->throttled ? ", out of its processor quota" : "");
    return buf;
}
