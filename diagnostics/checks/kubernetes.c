/* SPDX-License-Identifier: Apache-2.0
 *
 * kubernetes: can this pod reach the Kubernetes API, what may its service account do, which GPUs
 * was it given? Everything is skipped outside a pod.
 *
 * The probe "kubernetes" asks the API. Pure functions, run by doctor.c.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/kubernetes.h"
#include "diagnostics/checks/nic.h"

#define OUR_VERSION "v1alpha1" /* the version of HvdJob that this build uses */

bool in_pod(const struct view *v, struct result *r)
{
    const char *host = machine_env(v->machine, "KUBERNETES_SERVICE_HOST");
    if (host && *host)
        return true;
    result_skip(r, "does not apply: not in a pod (KUBERNETES_SERVICE_HOST is not set)");
    return false;
}

/* ---- the API ---- */

/* Returns false when the pod has no service account token; the result is set. */
static bool has_token(const struct view *v, struct result *r, const struct answer *a)
{
    if (!in_pod(v, r) || !result_needs(r, a, "the Kubernetes API"))
        return false;
    const char *token = answer_str(a, "token", "not looked for");
    if (strcmp(token, "ok") == 0)
        return true;
    result_skip(r,
                "no service account token in this pod (%s): a job's pods need none; "
                "automountServiceAccountToken: true mounts one",
                token);
    return false;
}

static bool is_launcher(const struct view *v)
{
    return v->setting->profiles & PROFILE_LAUNCHER;
}

static void check_api(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "kubernetes");
    if (!has_token(v, r, a))
        return;
    int status = (int)answer_int(a, "version.status", 0);
    const char *url = answer_str(a, "url", "the API");
    result_observed(r, "%d", status);
    result_expected(r, "200");
    if (status == 200)
        result_pass(r, "Kubernetes %s at %s, %" PRId64 " ms",
                    answer_str(a, "version.git", "(no version)"), url,
                    answer_int(a, "version.ms", 0));
    else if (status == 403)
        result_info(r, "%s answers, /version is forbidden to this service account", url);
    else if (status == 401)
        result_fail(r, "%s refuses the token (401): expired, or of another cluster", url);
    else if (status)
        result_warn(r, "%s/version answers %d", url, status);
    else if (is_launcher(v))
        result_fail(r, "%s: %s", url, answer_str(a, "version.text", "no answer"));
    else
        result_warn(r, "%s: %s; a job's pods work without the API", url,
                    answer_str(a, "version.text", "no answer"));
}

/* Returns false when the API gave no answer; the result is set. */
static bool answered(const struct view *v, struct result *r, const struct answer *a)
{
    if (!has_token(v, r, a))
        return false;
    int status = (int)answer_int(a, "version.status", 0);
    if (status && status != 401)
        return true;
    result_skip(r, "the API gave no answer: see k8s-api-reachable");
    return false;
}

static void check_rbac(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "kubernetes");
    char denied[300] = "";
    int allowed = 0, unknown = 0;
    if (!answered(v, r, a))
        return;
    int n = answer_count(a, "access");
    for (int i = 0; i < n; i++) {
        int status = (int)answer_int_at(a, "access", i, "status", 0);
        bool yes = answer_int_at(a, "access", i, "allowed", 0);
        allowed += yes;
        unknown += status != 201 && status != 200;
        if (!yes)
            check_append(denied, sizeof(denied), ", ", "%s %s",
                         answer_str_at(a, "access", i, "verb", "?"),
                         answer_str_at(a, "access", i, "resource", "?"));
    }
    const char *space = answer_str(a, "namespace", "default");
    result_observed(r, "%d of %d", allowed, n);
    result_expected(r, "%d of %d for hvd-operator, none for a job's pods", n, n);
    if (n == 0 || unknown == n)
        result_skip(r, "the API answers no SelfSubjectAccessReview: bind the role "
                       "system:basic-user, which all service accounts have by default");
    else if (unknown)
        result_warn(r, "%d of %d access reviews got no answer", unknown, n);
    else if (allowed == n)
        result_pass(r, "all %d rights that hvd-operator needs, in namespace %s", n, space);
    else if (is_launcher(v))
        result_fail(r, "%d of %d rights missing in namespace %s: %s", n - allowed, n, space,
                    denied);
    else if (allowed == 0)
        result_pass(r, "none of the operator's rights, as it should be in a job's pod");
    else
        result_info(r, "%d of %d of the operator's rights; a job's pods need none", allowed, n);
}

static void check_crd(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "kubernetes");
    char served[200] = "";
    bool ours = false;
    if (!answered(v, r, a))
        return;
    int status = (int)answer_int(a, "group.status", 0), n = answer_count(a, "served");
    for (int i = 0; i < n; i++) {
        const char *name = answer_str_at(a, "served", i, "name", "?");
        check_append(served, sizeof(served), ", ", "%s", name);
        ours = ours || strcmp(name, OUR_VERSION) == 0;
    }
    result_observed(r, "%s", served);
    result_expected(r, OUR_VERSION);
    if (ours)
        result_pass(r, "HvdJob: the cluster serves %s", served);
    else if (n)
        result_fail(r, "the cluster serves HvdJob as %s, this build needs " OUR_VERSION, served);
    else if (status == 404 && is_launcher(v))
        result_fail(r, "HvdJob is not installed in this cluster");
    else if (status == 404)
        result_info(r, "HvdJob is not installed in this cluster: jobs need another launcher");
    else
        result_skip(r, "/apis/hvd.dev answers %d %s: bind the role system:discovery", status,
                    answer_str(a, "group.text", ""));
}

/* ---- GPUs ---- */

/* How many device files /dev/nvidia0, /dev/nvidia1 ... there are. */
static int device_files(const struct machine *m)
{
    auto_free char **names = NULL;
    int n = 0;
    if (machine_list(m, "dev", &names, NULL) < 0)
        return 0;
    for (size_t i = 0; names[i]; i++) {
        const char *digits = names[i] + 6;
        if (strncmp(names[i], "nvidia", 6) == 0 && isdigit((unsigned char)*digits) &&
            strspn(digits, "0123456789") == strlen(digits))
            n++;
    }
    return n;
}

/* How many GPUs NVIDIA_VISIBLE_DEVICES lists; -1: it lists none ("all", "void", a folder,
 * unset). */
static int granted(const char *value)
{
    int n = 0;
    if (!value || !*value || *value == '/' || strcmp(value, "all") == 0 ||
        strcmp(value, "void") == 0 || strcmp(value, "none") == 0)
        return -1;
    for (const char *p = value; *p; p += strcspn(p, ","), p += *p == ',')
        n += *p != ',';
    return n;
}

static void check_gpus(const struct view *v, struct result *r)
{
    const char *value = machine_env(v->machine, "NVIDIA_VISIBLE_DEVICES");
    int files = device_files(v->machine), n = granted(value), asked = v->setting->gpus;
    if (!in_pod(v, r))
        return;
    int got = n >= 0 ? n : files;
    result_observed(r, "%d", got);
    result_expected(r, asked >= 0 ? "%d" : "at least 1", asked);
    if (files == 0 && n <= 0 && asked == 0)
        result_pass(r, "the job wants no GPU, the pod was given none");
    else if (files == 0 && n <= 0)
        result_fail(r, "no GPU was given to this pod (NVIDIA_VISIBLE_DEVICES %s%s)",
                    value ? "is " : "is not set", value ? value : "");
    else if (asked > got)
        result_fail(r, "the job wants %d GPUs here, the pod was given %d", asked, got);
    else if (n >= 0 && strstr(value, "MIG-") == NULL && files < n)
        result_fail(r, "%d GPUs were given, only %d /dev/nvidia* are here", n, files);
    else if (n >= 0 && strstr(value, "MIG-") == NULL && files > n)
        result_warn(r,
                    "%d GPUs were given, but %d /dev/nvidia* are here (privileged?): ranks may "
                    "take those of other pods",
                    n, files);
    else if (asked >= 0 && asked < got)
        result_warn(r, "the job wants %d GPUs here, the pod sees %d: NVIDIA_VISIBLE_DEVICES is %s",
                    asked, got, value ? value : "not set");
    else
        result_pass(r, "%d GPU%s%s", got, got == 1 ? "" : "s",
                    n >= 0 ? " given by the device plugin" : "");
}

#define API_DOC "https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"

static const struct check rows[] = {
    {.id = "k8s-api-reachable",
     .code = "HVD9204",
     .group = GROUP_KUBERNETES,
     .level = 1,
     .profiles = PROFILE_K8S,
     .needs = "a service account token",
     .probes = {"kubernetes"},
     .run = check_api,
     .title = "the Kubernetes API answers",
     .why = "Without the API hvd-operator and launchers that make pods cannot work. The pods of a "
            "running job are not affected.",
     .fix = {NULL,
             "a NetworkPolicy must let TCP to the API out (kubectl get endpoints kubernetes); for "
             "401: kubectl delete pod POD mounts a fresh token",
             NULL},
     .action = ACTION_NETWORK,
     .explain = "GET /version at KUBERNETES_SERVICE_HOST with the pod's token, only the pod's "
                "ca.crt is trusted. 401 fails; no answer fails with --profile launcher and warns "
                "otherwise.",
     .refs = {API_DOC}},
    {.id = "k8s-rbac",
     .code = "HVD9205",
     .group = GROUP_KUBERNETES,
     .level = 1,
     .profiles = PROFILE_K8S,
     .needs = "a service account token",
     .probes = {"kubernetes"},
     .run = check_rbac,
     .title = "rights of the service account",
     .why = "hvd-operator fails at the first request that it may not make: jobs stay where they "
            "are.",
     .fix =
         {NULL,
          "bind the operator's Role: kubectl create rolebinding hvd-operator --role=hvd-operator "
          "--serviceaccount=NAMESPACE:NAME; try: kubectl auth can-i create pods --as="
          "system:serviceaccount:NAMESPACE:NAME",
          NULL},
     .action = ACTION_PERMISSION,
     .explain = "A SelfSubjectAccessReview for each right of hvd-operator in the pod's namespace: "
                "HvdJobs, pods, secrets (create only), disruption budgets, events, leases. With "
                "--profile launcher a missing right fails; elsewhere having none is right.",
     .refs = {"https://kubernetes.io/docs/reference/access-authn-authz/authorization/",
              "https://kubernetes.io/docs/reference/access-authn-authz/rbac/"}},
    {.id = "k8s-crd-version",
     .code = "HVD9206",
     .group = GROUP_KUBERNETES,
     .level = 1,
     .profiles = PROFILE_K8S,
     .needs = "a service account token",
     .probes = {"kubernetes"},
     .run = check_crd,
     .title = "HvdJob's version in the cluster",
     .why = "An operator of another version than the cluster's definition of HvdJob sees no jobs, "
            "or loses fields of their specification.",
     .fix = {NULL, "kubectl apply the CRD of this release; kubectl get crd hvdjobs.hvd.dev", NULL},
     .action = ACTION_VERSION,
     .explain = "GET /apis/hvd.dev (discovery, allowed to every service account): the served "
                "versions must have " OUR_VERSION ". Not installed fails with --profile launcher "
                "only.",
     .refs = {"https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/"
              "custom-resource-definition-versioning/"}},
    {.id = "k8s-gpu-alloc",
     .code = "HVD9207",
     .group = GROUP_KUBERNETES,
     .level = 1,
     .profiles = PROFILE_GPU,
     .needs = "a pod",
     .run = check_gpus,
     .title = "GPUs given to the pod",
     .why = "A pod that did not ask for GPUs gets none (or, with an image that sets "
            "NVIDIA_VISIBLE_DEVICES=all, those of other pods too: out of memory for both).",
     .fix = {NULL,
             "resources: {limits: {nvidia.com/gpu: 8}}; kubectl describe node NODE | grep "
             "nvidia.com/gpu",
             NULL},
     .action = ACTION_JOB,
     .explain =
         "NVIDIA_VISIBLE_DEVICES, which the device plugin sets to the GPUs it gives (void or "
         "a folder when it uses CDI or volumes), against /dev/nvidia0, 1, ... and against "
         "--gpus.",
     .refs = {"https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",
              "https://github.com/NVIDIA/k8s-device-plugin"}},
};

const struct check_table checks_kubernetes = {rows, sizeof(rows) / sizeof(*rows)};
