/* SPDX-License-Identifier: Apache-2.0
 *
 * coordination_handlers: sends the driver's events of jobs and pods to the plane, and takes facts
 * for a job's status from the mirror. See coordination.h.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "operator/coordination_private.h"
#include "operator/link/plane_message.h"
#include "operator/objects/moment.h"

static void forget(struct coordination *c, const char *uid)
{
    if (!plane_mirror_knows(c->mirror, uid))
        return;
    plane_mirror_forget(c->mirror, uid);
    link_send(c->link, json_pack("{s:s, s:s}", "type", "forget", "job", uid));
}

/* Describes the job to the plane. A spec that has become invalid changes nothing in a job that the
 * plane knows. A new leader takes such a job as it is, so that its ranks train on and their agents
 * come back. */
static void on_job(void *arg, const struct hvdjob *job)
{
    struct coordination *c = arg;
    struct plane_job update = {.uid = job->uid,
                               .namespace_ = job->namespace_,
                               .name = job->name,
                               .workers = job->workers,
                               .min = job->min,
                               .max = job->max,
                               .slots = job->slots,
                               .keep_places = job->keep_places,
                               .began =
                                   job->status.epoch > 0 || job->status.admitted != MOMENT_NONE};
    if (!c->listens)
        return;
    if (job_phase_finished(job->status.phase)) {
        forget(c, job->uid);
        return;
    }
    if (job->refused && plane_mirror_knows(c->mirror, job->uid))
        return;
    if (plane_mirror_job(c->mirror, job->uid) < 0) {
        log_warn("job %s/%s: no memory to coordinate it", job->namespace_, job->name);
        return;
    }
    keys_job_hash(keystore_keys(c->keystore), job->uid, update.key_hash);
    link_send(c->link, plane_write_job(&update));
}

static void on_job_gone(void *arg, const char *uid)
{
    struct coordination *c = arg;
    if (c->listens)
        forget(c, uid);
}

static void on_pod(void *arg, const struct pod *pod, bool gone)
{
    struct coordination *c = arg;
    const struct plane_pod update = {.uid = pod->uid,
                                     .name = pod->name,
                                     .worker = pod->worker,
                                     .attempt = pod->attempt,
                                     .bound = pod->node != NULL,
                                     .deleting = pod->deleting,
                                     .finished = pod_finished(pod)};
    if (!c->listens || !plane_mirror_knows(c->mirror, pod->owner))
        return;
    if (gone)
        link_send(c->link, json_pack("{s:s, s:s, s:s}", "type", "podGone", "job", pod->owner, "pod",
                                     pod->uid));
    else
        link_send(c->link, plane_write_pod(pod->owner, &update));
}

static void on_push(void *arg)
{
    struct coordination *c = arg;
    if (c->listens)
        link_push(c->link);
}

static void on_facts(void *arg, const char *uid, struct job_facts *ret)
{
    const struct coordination *c = arg;
    struct plane_facts facts;
    *ret = (struct job_facts){0};
    if (!c->mirror || !plane_mirror_facts(c->mirror, uid, &facts, &ret->findings))
        return;
    ret->known = !facts.rebuilding;
    ret->epoch = (int)facts.epoch;
    snprintf(ret->waiting_for, sizeof(ret->waiting_for), "%s", facts.waiting_for);
    ret->first.known = facts.first_failure.known;
    ret->first.rank = facts.first_failure.rank;
    ret->first.worker = facts.first_failure.worker;
    snprintf(ret->first.text, sizeof(ret->first.text), "%.319s", facts.first_failure.text);
}

static const char *on_key(void *arg, const char *uid)
{
    struct coordination *c = arg;
    keys_job(keystore_keys(c->keystore), uid, c->key);
    return c->key;
}

struct driver_handlers coordination_handlers(struct coordination *c)
{
    return (struct driver_handlers){.job = on_job,
                                    .job_gone = on_job_gone,
                                    .pod = on_pod,
                                    .push = on_push,
                                    .facts = on_facts,
                                    .key = c->config.by_key ? on_key : NULL,
                                    .arg = c};
}
