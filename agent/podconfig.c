/* SPDX-License-Identifier: Apache-2.0
 *
 * podconfig: see podconfig.h.
 */
#include "agent/podconfig.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/termination.h"
#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/member/client.h"
#include "core/member/protocol.h"

#define START_TIMEOUT_S 600
#define DRAIN_S         25
#define JITTER_MS       10000
#define UID_MAX         63

static const char *const ours[] = {
    "HVD_OPERATOR",      "HVD_OPERATOR_CA",      "HVD_TOKEN_FILE",    "HVD_JOB_UID",
    "HVD_JOB_NAME",      "HVD_JOB_NAMESPACE",    "HVD_POD_UID",       "HVD_POD_NAME",
    "HVD_DRAIN_SECONDS", "HVD_REJOIN_JITTER_MS", "HVD_BIND",          "HVD_METRICS",
    "HVD_DOCTOR",        "HVD_DOCTOR_LEVEL",     TERMINATION_VARIABLE};

/* A uid of the API server, which becomes part of a URL path. */
static int get_uid(const char *variable, const char **ret, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const char *uid = getenv(variable);
    if (!uid || !*uid)
        return err_set(err, EINVAL, "%s is not set: an agent in a pod wants it", variable);
    if (strlen(uid) > UID_MAX || strspn(uid, allowed) != strlen(uid))
        return err_set(err, EINVAL, "%s=%.80s: want a uid", variable, uid);
    *ret = uid;
    return 0;
}

static int get_text(const char *variable, const char **ret, struct err *err)
{
    *ret = getenv(variable);
    return *ret && **ret
               ? 0
               : err_set(err, EINVAL, "%s is not set: an agent in a pod wants it", variable);
}

/* The URL of the operator, and the names of this agent and host. */
static int read_names(struct agent_config *c, struct err *err)
{
    uint8_t nonce[8];
    char hex[2 * sizeof(nonce) + 1], host[MEMBER_NAME_MAX] = "?";
    const char *url, *ca, *job, *pod, *name = getenv("HVD_POD_NAME");
    int rc = get_text("HVD_OPERATOR", &url, err);
    rc = rc < 0 ? rc : get_text("HVD_OPERATOR_CA", &ca, err);
    rc = rc < 0 ? rc : get_uid("HVD_JOB_UID", &job, err);
    rc = rc < 0 ? rc : get_uid("HVD_POD_UID", &pod, err);
    if (rc < 0)
        return rc;
    if (strncmp(url, "https://", 8) != 0)
        return err_set(err, EINVAL, "HVD_OPERATOR=%.100s: want https://NAME:PORT", url);
    randombytes_buf(nonce, sizeof(nonce));
    sodium_bin2hex(hex, sizeof(hex), nonce, sizeof(nonce));
    gethostname(host, sizeof(host) - 1);
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    if (asprintf(&c->url, "%.*s/jobs/%s/pods/%s", (int)n, url, job, pod) < 0)
        c->url = NULL;
    if (asprintf(&c->agent, "%s.%s", pod, hex) < 0)
        c->agent = NULL;
    c->ca_pem = strdup(ca);
    c->host = strdup(name && *name && strlen(name) < MEMBER_NAME_MAX ? name : host);
    return c->url && c->agent && c->ca_pem && c->host ? 0 : err_set(err, ENOMEM, "no memory");
}

static int read_token(struct agent_config *c, struct err *err)
{
    const char *path;
    int rc = get_text("HVD_TOKEN_FILE", &path, err);
    if (rc == 0)
        rc = client_read_token(path, &c->token, err);
    if (rc == 0 && !(c->token_file = strdup(path)))
        rc = err_set(err, ENOMEM, "no memory");
    return rc;
}

static int read_words(struct agent_config *c, struct err *err)
{
    const char *doctor = getenv("HVD_DOCTOR"), *bind = getenv("HVD_BIND");
    const char *metrics = getenv("HVD_METRICS");
    c->doctor = DOCTOR_WARN;
    c->bind_to = BIND_NONE;
    if (doctor && *doctor && doctor_policy_parse(doctor, &c->doctor) < 0)
        return err_set(err, EINVAL, "HVD_DOCTOR=%.40s: want fail, warn or off", doctor);
    if (bind && *bind && bind_to_parse(bind, &c->bind_to) < 0)
        return err_set(err, EINVAL, "HVD_BIND=%.40s: want core, numa or none", bind);
    if (metrics && *metrics && !(c->metrics = strdup(metrics)))
        return err_set(err, ENOMEM, "no memory");
    return 0;
}

static int read_number(const char *name, int def, int min, int max, int *ret, struct err *err)
{
    int64_t value = 0;
    int rc = env_int(name, def, min, max, &value, err);
    *ret = (int)value;
    return rc;
}

static int read_numbers(struct agent_config *c, struct err *err)
{
    int rc = read_number("DOCTOR_LEVEL", 1, 1, 3, &c->doctor_level, err);
    if (rc == 0)
        rc = read_number("START_TIMEOUT", START_TIMEOUT_S, 1, 86400, &c->start_timeout, err);
    if (rc == 0)
        rc = read_number("COORDINATOR_LOST_SECONDS", 0, 0, INT32_MAX / 1000, &c->lost_seconds, err);
    if (rc == 0)
        rc = read_number("DRAIN_SECONDS", DRAIN_S, 1, 86400, &c->drain_seconds, err);
    if (rc == 0)
        rc = read_number("REJOIN_JITTER_MS", JITTER_MS, 0, 60000, &c->jitter_ms, err);
    return rc;
}

static int copy_command(char *const *argv, struct agent_config *c, struct err *err)
{
    size_t n = strings_count(argv);
    c->argv = calloc(n + 1, sizeof(*c->argv));
    c->env = calloc(1, sizeof(*c->env));
    c->cwd = getcwd(NULL, 0);
    bool ok = c->argv && c->env && c->cwd;
    for (size_t i = 0; i < n && ok; i++)
        ok = (c->argv[i] = strdup(argv[i])) != NULL;
    if (n == 0)
        return err_set(err, EINVAL, "no command: hvd-agent pod -- COMMAND [ARGUMENT...]");
    return ok ? 0 : err_set(err, ENOMEM, "no memory for the command");
}

int podconfig_read(char *const *argv, struct agent_config *ret, struct err *err)
{
    struct agent_config c = {.pod = true};
    int rc = copy_command(argv, &c, err);
    if (rc == 0)
        rc = read_names(&c, err);
    if (rc == 0)
        rc = read_words(&c, err);
    if (rc == 0)
        rc = read_numbers(&c, err);
    if (rc == 0)
        rc = read_token(&c, err);
    if (rc < 0) {
        config_fini(&c);
        return rc;
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        unsetenv(ours[i]);
    *ret = c;
    return 0;
}
