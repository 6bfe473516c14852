/* SPDX-License-Identifier: Apache-2.0
 *
 * config: what hvdrun tells an agent on its standard input, as one JSON document: how to reach the
 * coordinator, with which CA and token, and what a rank is. Never on a command line.
 */
#ifndef HVD_AGENT_CONFIG_H
#define HVD_AGENT_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"

enum bind_to { BIND_CORE, BIND_NUMA, BIND_NONE };

/* What the doctor's findings mean for the start of ranks: none before it has found no failure; they
 * start at once and it looks beside them; it does not look. */
enum doctor_policy { DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_OFF };

struct agent_config {
    char *agent;     /* uid of this agent */
    char *host;      /* what the user calls this host */
    char *url;       /* of the coordinator */
    char *unix_path; /* its Unix socket, NULL: url alone */
    char *ca_pem;    /* NULL with a Unix socket */
    char *token;
    char **argv;       /* of a rank */
    char **env;        /* "NAME=value" to set for ranks on top of the agent's own environment */
    char *cwd;         /* of ranks */
    bool cwd_may_lack; /* another host: $HOME where there is no cwd */
    enum bind_to bind_to;
    bool report_bindings;
    enum doctor_policy doctor;
    char *metrics;     /* "[ADDR:]PORT" for /metrics, NULL: none */
    int start_timeout; /* seconds: to join, and HVD_START_TIMEOUT of ranks */
    int lost_seconds;  /* how long ranks outlive the coordinator */
    int beat_ms;       /* how long a poll for events waits: the agent's heartbeat; 0: 2 s */
    int verbose;
    /* In a pod (podconfig.c), where nobody has started it who reads its output: */
    bool pod;
    int doctor_level;  /* how much the doctor looks at; 0: its default */
    char *token_file;  /* that token came from, to be read again; NULL: none */
    int jitter_ms;     /* when the coordinator is back requests come within so long */
    int drain_seconds; /* for ranks to come to a boundary; 0: 25 */
};

/* A fresh JSON text, NULL when memory is out. */
char *config_write(const struct agent_config *config);

/* ret goes to config_fini(). */
int config_read(const char *text, size_t len, struct agent_config *ret, struct err *err);
void config_fini(struct agent_config *config);

/* "core", "numa", "none"; -EINVAL. */
int bind_to_parse(const char *word, enum bind_to *ret);
const char *bind_to_name(enum bind_to bind_to);

/* "warn", "fail", "off"; -EINVAL. */
int doctor_policy_parse(const char *word, enum doctor_policy *ret);
const char *doctor_policy_name(enum doctor_policy policy);

/* NULL-terminated lists of strings: free all of it; how many. */
void strings_free(char **list);
size_t strings_count(char *const *list);

/* As a JSON list, each in base64: a path or an argument need not be UTF-8. And back: -EINVAL with
 * the field, -ENOMEM; *ret goes to strings_free(). */
json_t *strings_pack(char *const *list);
int strings_unpack(json_t *j, const char *field, char ***ret, struct err *err);

#endif
