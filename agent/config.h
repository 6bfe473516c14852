/* SPDX-License-Identifier: Apache-2.0
 *
 * config: the configuration that hvdrun sends an agent on its standard input, as one JSON document:
 * how to reach the coordinator, with which CA and token, and what a rank runs. It holds secrets and
 * so is never on a command line.
 */
#ifndef HVD_AGENT_CONFIG_H
#define HVD_AGENT_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"

enum bind_to { BIND_CORE, BIND_NUMA, BIND_NONE };

/* How findings of the doctor affect the start of ranks. FAIL: ranks start only if the checks found
 * no failure. WARN: ranks start at once and the checks run beside them (with doctor_level > 1:
 * after them). OFF: no checks. */
enum doctor_policy { DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_OFF };

struct agent_config {
    char *agent;     /* uid of this agent */
    char *host;      /* the host's name as the user wrote it */
    char *url;       /* URL of the coordinator */
    char *unix_path; /* the coordinator's Unix socket, NULL: url alone */
    char *ca_pem;    /* NULL with a Unix socket */
    char *token;
    char **argv;       /* command of a rank */
    char **env;        /* "NAME=value" to set for ranks on top of the agent's own environment */
    char *cwd;         /* directory of ranks */
    bool cwd_may_lack; /* on another host: use $HOME if cwd does not exist */
    enum bind_to bind_to;
    bool report_bindings;
    enum doctor_policy doctor;
    char *metrics;     /* "[ADDR:]PORT" for /metrics, NULL: none */
    int start_timeout; /* seconds: to join, and for ranks as HVD_START_TIMEOUT */
    int lost_seconds;  /* seconds that ranks outlive the coordinator; 0, in a pod only: no limit */
    int beat_ms; /* how long a poll for events may wait, which is the agent's heartbeat; 0: 2 s */
    int verbose;
    /* In a pod only (podconfig.c): */
    bool pod;
    int doctor_level;  /* hvd-doctor --level; 0: its default */
    char *token_file;  /* where the token is read from again; NULL: nowhere */
    int jitter_ms;     /* requests to a restarted coordinator are spread over this time */
    int drain_seconds; /* limit for ranks to reach a step boundary; 0: 25 */
};

/* Returns a new JSON text, which the caller frees; NULL: no memory. */
char *config_write(const struct agent_config *config);

/* Reads a configuration; free *ret with config_fini(). */
int config_read(const char *text, size_t len, struct agent_config *ret, struct err *err);
void config_fini(struct agent_config *config);

/* Reads "core", "numa" or "none". Returns 0, or -EINVAL for another word. */
int bind_to_parse(const char *word, enum bind_to *ret);
const char *bind_to_name(enum bind_to bind_to);

/* Reads "warn", "fail" or "off". Returns 0, or -EINVAL for another word. */
int doctor_policy_parse(const char *word, enum doctor_policy *ret);
const char *doctor_policy_name(enum doctor_policy policy);

/* For NULL-terminated lists of strings: strings_free() frees list and strings, strings_count()
 * counts the strings. */
void strings_free(char **list);
size_t strings_count(char *const *list);

/* strings_pack() makes a JSON list of base64 texts, because a path or an argument need not be
 * UTF-8. strings_unpack() reads it back: -EINVAL names the field; -ENOMEM; free *ret with
 * strings_free(). */
json_t *strings_pack(char *const *list);
int strings_unpack(json_t *j, const char *field, char ***ret, struct err *err);

#endif
