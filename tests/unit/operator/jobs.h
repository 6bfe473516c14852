/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs: jobs, pods and nodes for tests, from JSON with single quotes. Included by one file per test
 * program.
 */
#ifndef HVD_TESTS_OPERATOR_JOBS_H
#define HVD_TESTS_OPERATOR_JOBS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/moment.h"
#include "operator/objects/node.h"
#include "operator/reconcile/reconcile.h"

#define NOW INT64_C(1700000000000) /* 2023-11-14T22:13:20Z */

static inline json_t *from_text(const char *text)
{
    char copy[4096];
    json_t *j = NULL;
    struct err err = {0};
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    if (json_read(copy, strlen(copy), "test", &j, &err) < 0)
        fail_msg("%s: %s", err.msg, copy);
    return j;
}

/* A job "digits" with this spec, in which the template may be missing, and this status. */
static inline struct hvdjob make_job(const char *spec, const char *status)
{
    char text[4096];
    struct hvdjob job;
    struct err err = {0};
    bool templated = strstr(spec, "'template':");
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'digits','namespace':'ml','uid':'u1','generation':3,"
             "'resourceVersion':'7','creationTimestamp':'2023-11-14T22:00:00Z'},'spec':{%s%s%s},"
             "'status':{%s}}",
             spec, *spec && !templated ? "," : "",
             templated ? ""
                       : "'template':{'spec':{'containers':[{'name':'w','command':['x'],"
                         "'resources':{'requests':{'cpu':'2','memory':'1Gi'}}}]}}",
             status);
    auto_json json_t *j = from_text(text);
    if (hvdjob_parse(j, &job, &err) < 0)
        fail_msg("%s", err.msg);
    return job;
}

/* "0-1R": worker 0, attempt 1, running. P pending, B pending with a node, G with the gate of an
 * earlier version, R running,
 * L running, but its labels were changed, S succeeded, F failed, E evicted, A ended by its agent,
 * without an operator; small letters: also being deleted. D: running and being evicted. X: not the
 * job's, pending. "0-1F42" failed with exit code 42. E has the condition DisruptionTarget.
 */
static inline struct pod make_pod(const char *text)
{
    struct pod p = {.owner = "u1", .created = NOW};
    char name[64], kind = '\0';
    int code = 1, end = 0;
    if (sscanf(text, "%d-%d%c%n", &p.worker, &p.attempt, &kind, &end) != 3)
        fail_msg("\"%s\" is no valid pod", text);
    if (text[end] >= '0' && text[end] <= '9')
        code = atoi(text + end);
    snprintf(name, sizeof(name), "digits-%d-%d", p.worker, p.attempt);
    snprintf(p.uid, sizeof(p.uid), "uid-%.40s", name);
    p.name = strdup(name);
    p.deleting = kind >= 'a';
    p.leaves_by = p.deleting ? NOW : MOMENT_NONE;
    kind = kind >= 'a' ? (char)(kind - 'a' + 'A') : kind;
    p.gated = kind == 'G';
    p.strayed = kind == 'L';
    p.phase = strchr("RL", kind)    ? POD_RUNNING
              : kind == 'S'         ? POD_SUCCEEDED
              : strchr("FEA", kind) ? POD_FAILED
                                    : POD_PENDING;
    p.disrupted = kind == 'E' || kind == 'A';
    p.exit_code = kind == 'F' ? code : kind == 'A' ? 125 : 0;
    if (p.exit_code) {
        p.exits = calloc(1, sizeof(*p.exits));
        *p.exits = (struct pod_exit){"w", p.exit_code};
        p.nexits = 1;
    }
    if (kind == 'E')
        p.conditions = from_text("[{'type':'DisruptionTarget','status':'True'}]");
    if (kind == 'A') {
        p.agent_end = AGENT_END_AWAY;
        p.why = strdup("Error: hvd-agent: operator-away: no answer for 60 s");
    }
    if (kind == 'D') {
        p.phase = POD_RUNNING;
        p.deleting = true;
        p.leaves_by = NOW;
        snprintf(p.disruption, sizeof(p.disruption), "EvictionByEvictionAPI");
    }
    if (kind == 'X')
        snprintf(p.owner, sizeof(p.owner), "other");
    if (strchr("BRLDSFEA", kind))
        p.node = strdup("n1");
    return p;
}

/* Reserves for n workers, or for as many as fit. */
static inline void reserve(struct cluster *c, const struct podspec *spec, int n)
{
    int *counts = calloc((size_t)c->n + 1, sizeof(*counts));
    fit_plan(c, spec, n, counts);
    for (int i = 0; i < c->n; i++)
        fit_place(c, i, spec, counts[i]);
    free(counts);
}

/* Makes the pods of a text such as "0-0R 1-0F". The caller has room for them, and frees each with
 * pod_fini(). Returns how many there are. */
static inline int make_pods(const char *text, struct pod *pods, const struct pod **list)
{
    int n = 0;
    for (const char *p = text; *p; p += strcspn(p, " ") + (p[strcspn(p, " ")] == ' ')) {
        pods[n] = make_pod(p);
        list[n] = &pods[n];
        n++;
    }
    return n;
}

/* Writes the phase and the actions to dst, such as "Running: status event +3-0". */
static inline void told(const struct actions *a, char *dst, size_t size)
{
    size_t n = (size_t)snprintf(dst, size, "%s:", job_phase_name(a->status.phase));
    for (int i = 0; i < a->n && n < size; i++) {
        const struct action *x = &a->all[i];
        int worker = x->pod ? x->pod->worker : x->worker;
        int attempt = x->pod ? x->pod->attempt : x->attempt;
        static const char *const marks[] = {"status", "event", "group", "+", "-", "delete"};
        const char *mark = marks[x->kind];
        if (strlen(mark) == 1)
            n += (size_t)snprintf(dst + n, size - n, " %s%d-%d", mark, worker, attempt);
        else
            n += (size_t)snprintf(dst + n, size - n, " %s", mark);
    }
}

static inline struct reconcile_input input(const struct hvdjob *job, const struct pod *const *pods,
                                           int n, const struct admission *admission)
{
    static char api[64];
    return (struct reconcile_input){.job = job,
                                    .pods = pods,
                                    .npods = n,
                                    .admission = admission,
                                    .gang = gang_choose(job, "", api, sizeof(api), NULL),
                                    .status_every = RECONCILE_STATUS_EVERY,
                                    .texts_since = NOW - RECONCILE_STATUS_JOIN,
                                    .now = NOW};
}

#endif
