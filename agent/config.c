/* SPDX-License-Identifier: Apache-2.0
 *
 * config: see config.h.
 */
#include "agent/config.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/words.h"
#include "core/json/json.h"

static const char *const bind_names[] = {"core", "numa", "none"};
static const char *const policy_names[] = {"warn", "fail", "off"};

int bind_to_parse(const char *word, enum bind_to *ret)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(bind_names[i], word) == 0) {
            *ret = (enum bind_to)i;
            return 0;
        }
    }
    return -EINVAL;
}

const char *bind_to_name(enum bind_to bind_to)
{
    return bind_names[bind_to];
}

int doctor_policy_parse(const char *word, enum doctor_policy *ret)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(policy_names[i], word) == 0) {
            *ret = (enum doctor_policy)i;
            return 0;
        }
    }
    return -EINVAL;
}

const char *doctor_policy_name(enum doctor_policy policy)
{
    return policy_names[policy];
}

void strings_free(char **list)
{
    for (char **s = list; s && *s; s++)
        free(*s);
    free(list);
}

size_t strings_count(char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

json_t *strings_pack(char *const *list)
{
    json_t *j = json_array();
    for (size_t i = 0; list && list[i]; i++)
        json_append(&j, json_bytes(list[i], strlen(list[i])));
    return j;
}

int strings_unpack(json_t *j, const char *field, char ***ret, struct err *err)
{
    size_t n = json_array_size(j);
    char **list = calloc(n + 1, sizeof(*list));
    int rc = list ? 0 : err_set(err, ENOMEM, "no memory for %s", field);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const char *text = json_string_value(json_array_get(j, i));
        size_t size = text ? strlen(text) + 1 : 0, len = 0;
        list[i] = calloc(1, size + 1);
        if (!list[i])
            rc = err_set(err, ENOMEM, "no memory for %s", field);
        else if (!text)
            rc = err_set(err, EINVAL, "configuration: %s: want a list of strings", field);
        else
            rc = json_bytes_read(text, field, list[i], size, &len, err);
    }
    if (rc < 0)
        strings_free(list);
    else
        *ret = list;
    return rc;
}

char *config_write(const struct agent_config *c)
{
    auto_json json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:b, s:s, s:b, s:s, s:i, s:i, s:i, s:i}", "agent",
        c->agent, "host", c->host, "url", c->url, "token", c->token, "argv", strings_pack(c->argv),
        "env", strings_pack(c->env), "cwd", json_bytes(c->cwd, strlen(c->cwd)), "cwd_may_lack",
        c->cwd_may_lack, "bind_to", bind_to_name(c->bind_to), "report_bindings", c->report_bindings,
        "doctor", doctor_policy_name(c->doctor), "start_timeout", c->start_timeout, "lost_seconds",
        c->lost_seconds, "beat_ms", c->beat_ms, "verbose", c->verbose);
    /* Optional fields are set separately: json_pack() would omit one on a failed allocation. */
    if (c->unix_path)
        json_put(&j, "unix", json_string(c->unix_path));
    if (c->ca_pem)
        json_put(&j, "ca", json_string(c->ca_pem));
    if (c->metrics)
        json_put(&j, "metrics", json_string(c->metrics));
    return json_write(j);
}

int config_read(const char *text, size_t len, struct agent_config *ret, struct err *err)
{
    const char *what = "configuration", *agent = "", *host = "", *url = "", *token = "";
    const char *unix_path = NULL, *ca = NULL, *metrics = NULL;
    const char *bind = "", *cwd = "", *doctor = "";
    int may_lack = 0, report = 0;
    json_t *argv = NULL, *env = NULL;
    struct agent_config c = {0};
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, what, &j, err);
    if (rc == 0)
        rc = json_expect(j, what, err,
                         "{s:s, s:s, s:s, s?s, s?s, s:s, s:o, s:o, s:s, s:b, s:s, s:b, s:s, s?s, "
                         "s:i, s:i, s?i, s:i}",
                         "agent", &agent, "host", &host, "url", &url, "unix", &unix_path, "ca", &ca,
                         "token", &token, "argv", &argv, "env", &env, "cwd", &cwd, "cwd_may_lack",
                         &may_lack, "bind_to", &bind, "report_bindings", &report, "doctor", &doctor,
                         "metrics", &metrics, "start_timeout", &c.start_timeout, "lost_seconds",
                         &c.lost_seconds, "beat_ms", &c.beat_ms, "verbose", &c.verbose);
    if (rc < 0)
        return rc;
    if (bind_to_parse(bind, &c.bind_to) < 0 || doctor_policy_parse(doctor, &c.doctor) < 0 ||
        json_array_size(argv) == 0)
        return err_set(err, EINVAL, "%s: bad bind_to, doctor or argv", what);
    size_t cwd_len;
    bool ok = true;
    c.agent = words_copy(agent, &ok);
    c.host = words_copy(host, &ok);
    c.url = words_copy(url, &ok);
    c.unix_path = words_copy(unix_path, &ok);
    c.ca_pem = words_copy(ca, &ok);
    c.token = words_copy(token, &ok);
    c.metrics = words_copy(metrics, &ok);
    c.cwd = calloc(1, strlen(cwd) + 1);
    c.cwd_may_lack = may_lack;
    c.report_bindings = report;
    if (!ok || !c.cwd)
        rc = err_set(err, ENOMEM, "no memory for the configuration");
    if (rc == 0)
        rc = json_bytes_read(cwd, "cwd", c.cwd, strlen(cwd), &cwd_len, err);
    if (rc == 0)
        rc = strings_unpack(argv, "argv", &c.argv, err);
    if (rc == 0)
        rc = strings_unpack(env, "env", &c.env, err);
    if (rc < 0)
        config_fini(&c);
    else
        *ret = c;
    return rc;
}

void config_fini(struct agent_config *c)
{
    if (c->token)
        sodium_memzero(c->token, strlen(c->token));
    free(c->agent);
    free(c->host);
    free(c->url);
    free(c->unix_path);
    free(c->ca_pem);
    free(c->token);
    free(c->token_file);
    free(c->metrics);
    free(c->cwd);
    strings_free(c->argv);
    strings_free(c->env);
    *c = (struct agent_config){0};
}
