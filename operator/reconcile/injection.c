/* SPDX-License-Identifier: Apache-2.0
 *
 * injection: see injection.h.
 */
#include "operator/reconcile/injection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/objects/template.h"
#include "operator/objects/parts.h"

#define VOLUME_BUNDLE TEMPLATE_VOLUMES "bundle"
#define VOLUME_SHM    TEMPLATE_VOLUMES "shm"
#define VOLUME_TOKEN  TEMPLATE_VOLUMES "token"

/* An annotation of pods: emptyDirs that do not matter when the pod is evicted. */
#define EVICTABLE "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

#define TOKEN_FOLDER  "/var/run/secrets/hvd.dev"
#define TOKEN_SECONDS 3600
#define BUNDLE_LIMIT  "256Mi"
/* The drain's limit is this many seconds less than the pod's grace period, so that the drain ends
 * before the kubelet's SIGKILL. A grace period of up to 2 * DRAIN_LESS is halved instead. */
#define DRAIN_LESS 5
/* uid of the init container in a pod whose other containers run as root. */
#define ORDINARY_USER 65532

struct injecting {
    const struct injection *e;
    const struct hvdjob *job;
    json_t *spec, *first; /* the pod's spec and its training container; borrowed */
    size_t nenv;          /* injected variables, at the front of the list */
};

/* ---- volumes -------------------------------------------------------------------------------- */

static bool add_volume(struct injecting *q, json_t *volume, const char *path, bool read_only)
{
    json_t *volumes = parts_list(q->spec, "volumes");
    json_t *mounts = parts_list(q->first, "volumeMounts");
    json_t *mount =
        json_pack("{s:O?, s:s}", "name", json_object_get(volume, "name"), "mountPath", path);
    if (read_only && mount && json_object_set_new(mount, "readOnly", json_true()) < 0)
        return json_decref(mount), json_decref(volume), false;
    /* Both calls take the reference, also on failure. */
    bool mounted = json_array_append_new(mounts, mount) == 0;
    return json_array_append_new(volumes, volume) == 0 && mounted;
}

static bool add_shm(struct injecting *q, json_t *pod)
{
    char size[32];
    int64_t bytes = template_shm(pod);
    if (bytes == 0)
        return true;
    snprintf(size, sizeof(size), "%" PRId64, bytes);
    return add_volume(q,
                      json_pack("{s:s, s:{s:s, s:s}}", "name", VOLUME_SHM, "emptyDir", "medium",
                                "Memory", "sizeLimit", size),
                      "/dev/shm", false);
}

/* A projected token, bound to this pod and audience: the API server accepts it for nothing else. */
static bool add_token(struct injecting *q)
{
    return add_volume(q,
                      json_pack("{s:s, s:{s:[{s:{s:s, s:i, s:s}}]}}", "name", VOLUME_TOKEN,
                                "projected", "sources", "serviceAccountToken", "audience",
                                q->e->audience, "expirationSeconds", TOKEN_SECONDS, "path",
                                "token"),
                      TOKEN_FOLDER, true);
}

/* ---- the bundle ----------------------------------------------------------------------------- */

/* Returns the resources of the init container that copies the bundle: the training container's, so
 * that the pod requests no more than its template does, keeps its QoS class, and passes quotas that
 * require limits. Without devices (GPUs). NULL: no memory. */
static json_t *copier_resources(json_t *first)
{
    static const char *const kinds[] = {"cpu", "memory", "ephemeral-storage"};
    static const char *const parts[] = {"requests", "limits"};
    json_t *have = json_object_get(first, "resources"), *ret = json_object();
    for (size_t p = 0; p < 2; p++) {
        json_t *map = json_object_get(have, parts[p]);
        for (size_t i = 0; i < 3; i++) {
            json_t *value = json_object_get(map, kinds[i]), *part;
            if (value &&
                (!(part = parts_map(ret, parts[p])) || json_object_set(part, kinds[i], value) < 0))
                return json_decref(ret), NULL;
        }
    }
    return ret;
}

static json_t *copier_security(json_t *spec)
{
    json_t *user = json_object_get(json_object_get(spec, "securityContext"), "runAsUser");
    json_t *s =
        json_pack("{s:b, s:b, s:b, s:{s:[s]}, s:{s:s}}", "runAsNonRoot", 1,
                  "allowPrivilegeEscalation", 0, "readOnlyRootFilesystem", 1, "capabilities",
                  "drop", "ALL", "seccompProfile", "type", "RuntimeDefault");
    if (s && json_is_integer(user) && json_integer_value(user) == 0 &&
        json_object_set_new(s, "runAsUser", json_integer(ORDINARY_USER)) < 0)
        return json_decref(s), NULL;
    return s;
}

static json_t *copier(struct injecting *q, const char *image)
{
    return json_pack("{s:s, s:s, s:s, s:[s, s, s], s:s, s:o, s:o, s:[{s:s, s:s}]}", "name",
                     VOLUME_BUNDLE, "image", image, "imagePullPolicy", "IfNotPresent", "command",
                     "/bin/hvd-launch", "--install", TEMPLATE_PLACE, "terminationMessagePolicy",
                     "FallbackToLogsOnError", "resources", copier_resources(q->first),
                     "securityContext", copier_security(q->spec), "volumeMounts", "name",
                     VOLUME_BUNDLE, "mountPath", TEMPLATE_PLACE);
}

static bool add_bundle(struct injecting *q, json_t *pod)
{
    const char *annotation = template_annotation(pod, TEMPLATE_BUNDLE);
    const char *image = annotation ? annotation : q->e->bundle;
    if (!image || !*image)
        return true;
    if (q->e->mount)
        return add_volume(q,
                          json_pack("{s:s, s:{s:s, s:s}}", "name", VOLUME_BUNDLE, "image",
                                    "reference", image, "pullPolicy", "IfNotPresent"),
                          TEMPLATE_PLACE, true);
    /* The copier comes before the template's init containers: one of those may be a sidecar, which
     * would keep running beside the copier. */
    json_t *init = parts_list(q->spec, "initContainers");
    return init && json_array_insert_new(init, 0, copier(q, image)) == 0 &&
           add_volume(q,
                      json_pack("{s:s, s:{s:s}}", "name", VOLUME_BUNDLE, "emptyDir", "sizeLimit",
                                BUNDLE_LIMIT),
                      TEMPLATE_PLACE, true);
}

static bool is_ours(json_t *volume)
{
    const char *name = parts_text(volume, "name");
    return json_object_get(volume, "emptyDir") &&
           strncmp(name, TEMPLATE_VOLUMES, strlen(TEMPLATE_VOLUMES)) == 0;
}

/* Without this the cluster autoscaler never removes a node with the pod, because of its emptyDirs.
 * Names the injected ones, after those that the template names: what is in others is the user's. */
static bool add_evictable(struct injecting *q, json_t *pod)
{
    json_t *meta = json_object_get(pod, "metadata"), *volume, *annotations;
    auto_free char *text = NULL;
    size_t i;
    json_array_foreach(json_object_get(q->spec, "volumes"), i, volume)
    {
        const char *before =
            text ? text : parts_text(json_object_get(meta, "annotations"), EVICTABLE);
        char *longer;
        if (!is_ours(volume))
            continue;
        if (asprintf(&longer, "%s%s%s", before, *before ? "," : "", parts_text(volume, "name")) < 0)
            return false;
        free(text);
        text = longer;
    }
    return !text || ((annotations = parts_map(meta, "annotations")) &&
                     json_object_set_new(annotations, EVICTABLE, json_string(text)) == 0);
}

/* ---- environment ---------------------------------------------------------------------------- */

/* Removes the variable from the list. Returns whether the list had it. */
static bool drop_env(json_t *list, const char *name)
{
    bool had = false;
    for (size_t i = json_array_size(list); i-- > 0;) {
        const char *have = json_string_value(json_object_get(json_array_get(list, i), "name"));
        if (have && strcmp(have, name) == 0)
            had = json_array_remove(list, i) == 0;
    }
    return had;
}

/* Inserts a variable in front of the template's, which may refer to it as $(NAME). Takes the
 * reference to entry. */
static bool put_env(struct injecting *q, const char *name, json_t *entry)
{
    json_t *list = parts_list(q->first, "env");
    if (!list || !entry)
        return json_decref(entry), false;
    drop_env(list, name);
    return json_array_insert_new(list, q->nenv++, entry) == 0;
}

static bool put_value(struct injecting *q, const char *name, const char *value)
{
    return put_env(q, name, json_pack("{s:s, s:s}", "name", name, "value", value));
}

/* Sets the variable unless the template does. */
static bool fill_number(struct injecting *q, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return parts_find(json_object_get(q->first, "env"), "name", name) || put_value(q, name, text);
}

static bool put_field(struct injecting *q, const char *name, const char *path)
{
    return put_env(
        q, name,
        json_pack("{s:s, s:{s:{s:s}}}", "name", name, "valueFrom", "fieldRef", "fieldPath", path));
}

static int drain_seconds(json_t *spec)
{
    json_int_t grace = json_integer_value(json_object_get(spec, "terminationGracePeriodSeconds"));
    if (grace <= 2 * DRAIN_LESS)
        return grace > 1 ? (int)grace / 2 : 1;
    return grace > 86400 ? 86400 : (int)grace - DRAIN_LESS;
}

/* The job's level overrides the template's. Level 0: no variable, the doctor is off. */
static bool put_level(struct injecting *q)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", q->job->doctor_level);
    return q->job->doctor_level == 0 || put_value(q, "HVD_DOCTOR_LEVEL", text);
}

/* Tells the agent where the template wants the termination message, unless at the usual place. */
static bool put_termination(struct injecting *q)
{
    const char *path = parts_text(q->first, "terminationMessagePath");
    return !*path || put_value(q, "HVD_TERMINATION_MESSAGE_PATH", path);
}

static bool add_environment(struct injecting *q)
{
    const struct hvdjob *job = q->job;
    return put_value(q, "HVD_OPERATOR", q->e->url) && put_value(q, "HVD_OPERATOR_CA", q->e->ca) &&
           put_value(q, "HVD_TOKEN_FILE", TOKEN_FOLDER "/token") &&
           put_value(q, "HVD_JOB_UID", job->uid) && put_value(q, "HVD_JOB_NAME", job->name) &&
           put_value(q, "HVD_JOB_NAMESPACE", job->namespace_) &&
           put_field(q, "HVD_POD_UID", "metadata.uid") &&
           put_field(q, "HVD_POD_NAME", "metadata.name") &&
           put_value(q, "HVD_DOCTOR", job->doctor) && put_level(q) && put_termination(q) &&
           fill_number(q, "HVD_DRAIN_SECONDS", drain_seconds(q->spec));
}

/* ---- the training container ----------------------------------------------------------------- */

static bool wrap_command(struct injecting *q)
{
    json_t *command = json_pack("[s, s, s]", TEMPLATE_PLACE "/bin/hvd-agent", "pod", "--");
    json_t *args = json_object_get(q->first, "args");
    if (!command || json_array_extend(command, json_object_get(q->first, "command")) < 0 ||
        (json_is_array(args) && json_array_extend(command, args) < 0))
        return json_decref(command), false;
    json_object_del(q->first, "args");
    return json_object_set_new(q->first, "command", command) == 0;
}

/* Adds a readiness probe, except to pods on the host's network: several on one node would need the
 * same port. Such pods are ready as soon as they run. */
static bool add_probe(struct injecting *q)
{
    char port[16];
    if (json_is_true(json_object_get(q->spec, "hostNetwork")))
        return true;
    snprintf(port, sizeof(port), "%d", INJECTION_AGENT_PORT);
    return put_value(q, "HVD_METRICS", port) &&
           parts_fill(q->first, "readinessProbe",
                      json_pack("{s:{s:s, s:i}, s:i, s:i}", "httpGet", "path", "/ready", "port",
                                INJECTION_AGENT_PORT, "periodSeconds", 2, "failureThreshold", 3));
}

static bool ordinary(json_t *security)
{
    json_t *user = json_object_get(security, "runAsUser");
    return json_is_integer(user) ? json_integer_value(user) > 0
                                 : json_is_true(json_object_get(security, "runAsNonRoot"));
}

/* Adds the rest of what "restricted" requires, if the template says that the container does not run
 * as root. A root container is left as it is: it may need its capabilities. */
static bool add_security(struct injecting *q)
{
    json_t *of_pod = json_object_get(q->spec, "securityContext");
    json_t *of_first = json_object_get(q->first, "securityContext");
    bool own = json_object_get(of_first, "runAsUser") || json_object_get(of_first, "runAsNonRoot");
    if (!ordinary(own ? of_first : of_pod))
        return true;
    of_first = parts_map(q->first, "securityContext");
    return of_first && parts_fill(of_first, "allowPrivilegeEscalation", json_false()) &&
           parts_fill(of_first, "runAsNonRoot", json_true()) &&
           parts_fill(of_first, "capabilities", json_pack("{s:[s]}", "drop", "ALL")) &&
           (json_object_get(of_pod, "seccompProfile") ||
            parts_fill(of_first, "seccompProfile", json_pack("{s:s}", "type", "RuntimeDefault")));
}

int injection_add(const struct injection *e, const struct hvdjob *job, json_t *pod)
{
    struct injecting q = {.e = e, .job = job, .spec = json_object_get(pod, "spec")};
    q.first = json_array_get(json_object_get(q.spec, "containers"), 0);
    /* If the container fails, the end of its log becomes its termination message. */
    bool ok = add_shm(&q, pod) && add_token(&q) && add_bundle(&q, pod) && add_evictable(&q, pod) &&
              add_environment(&q) && wrap_command(&q) && add_probe(&q) && add_security(&q) &&
              parts_fill(q.first, "terminationMessagePolicy", json_string("FallbackToLogsOnError"));
    return ok ? 0 : -ENOMEM;
}
