/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs: jobs, pods and nodes for tests, from JSON with single quotes. Included by one file per test
 * program.
 */
#ifndef HVD_TESTS_OPERATOR_JOBS_H
#define HVD_TESTS_OPERATOR_JOBS_H

#include <stdio.h>
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

/* A job "digits" with this spec (without the template) and this status. */
static inline struct hvdjob make_job(const char *spec, const char *status)
{
    char text[4096];
    struct hvdjob job;
    struct err err = {0};
    snprintf(text, sizeof(text),
             "{'metadata':{'name':'digits','namespace':'ml','uid':'u1','generation':3,"
             "'resourceVersion':'7','creationTimestamp':'2023-11-14T22:00:00Z'},'spec':{%s%s"
             "'template':{'spec':{'containers':[{'name':'w','command':['x'],'resources':{"
             "'requests':{'cpu':'2','memory':'1Gi'}}}]}}},'status':{%s}}",
             spec, *spec ? "," : "", status);
    auto_json json_t *j = from_text(text);
    if (hvdjob_parse(j, &job, &err) < 0)
        fail_msg("%s", err.msg);
    return job;
}

/* "0-1R": worker 0, attempt 1, running. P pending, B pending with a node, G gated, R running,
 * S succeeded, F failed, E evicted, A ended by its agent, without an operator; small letters: also
 * being deleted. X: not the job's, pending.
 */
static inline struct pod make_pod(const char *text)
{
    struct pod p = {.owner = "u1", .created = NOW};
    char name[64], kind = '\0';
    if (sscanf(text, "%d-%d%c", &p.worker, &p.attempt, &kind) != 3)
        fail_msg("\"%s\" is no valid pod", text);
    snprintf(name, sizeof(name), "digits-%d-%d", p.worker, p.attempt);
    snprintf(p.uid, sizeof(p.uid), "uid-%.40s", name);
    p.name = strdup(name);
    p.deleting = kind >= 'a';
    kind = kind >= 'a' ? (char)(kind - 'a' + 'A') : kind;
    p.gated = kind == 'G';
    p.phase = kind == 'R'           ? POD_RUNNING
              : kind == 'S'         ? POD_SUCCEEDED
              : strchr("FEA", kind) ? POD_FAILED
                                    : POD_PENDING;
    p.disrupted = kind == 'E' || kind == 'A';
    p.exit_code = kind == 'F' ? 1 : kind == 'A' ? 125 : 0;
    if (kind == 'A') {
        p.agent_end = AGENT_END_AWAY;
        p.why = strdup("Error: hvd-agent: operator-away: no answer for 60 s");
    }
    if (kind == 'X')
        snprintf(p.owner, sizeof(p.owner), "other");
    if (strchr("BRSFEA", kind))
        p.node = strdup("n1");
    return p;
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

#endif
