/* SPDX-License-Identifier: Apache-2.0
 *
 * options_table: the table of hvdrun's options, and the functions that set them. See
 * options_private.h.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/horovod.h"
#include "agent/options_private.h"
#include "core/base/cleanup.h"
#include "core/member/pages.h"
#include "core/member/protocol.h"

#define START_TIMEOUT_MAX_S 86400
#define COOLDOWN_MAX_S      86400

static int set_number(struct options *o, const char *value, const char *setting, struct err *err);
static int set_script(struct options *o, const char *value, const char *setting, struct err *err);
static int set_hosts(struct options *o, const char *value, const char *setting, struct err *err);
static int set_hostfile(struct options *o, const char *value, const char *setting, struct err *err);
static int set_x(struct options *o, const char *value, const char *setting, struct err *err);
static int set_output(struct options *o, const char *value, const char *setting, struct err *err);
static int set_timeline(struct options *o, const char *value, const char *setting, struct err *err);
static int set_bind(struct options *o, const char *value, const char *setting, struct err *err);
static int set_file(struct options *o, const char *value, const char *setting, struct err *err);
static int set_name(struct options *o, const char *value, const char *setting, struct err *err);
static int set_identity(struct options *o, const char *value, const char *setting, struct err *err);
static int set_setting(struct options *o, const char *value, const char *setting, struct err *err);
static int set_cooldown(struct options *o, const char *value, const char *setting, struct err *err);
static int set_doctor(struct options *o, const char *value, const char *setting, struct err *err);
static int set_metrics(struct options *o, const char *value, const char *setting, struct err *err);
static int set_horovod(struct options *o, const char *value, const char *setting, struct err *err);
static int set_variable(struct options *o, const char *value, const char *setting, struct err *err);
static int set_config(struct options *o, const char *value, const char *setting, struct err *err);
static int set_end_with(struct options *o, const char *value, const char *setting, struct err *err);
static int set_flag(struct options *o, const char *value, const char *setting, struct err *err);

static const struct option options[] = {
    {"-np|-n|--num-proc", "N", "number of ranks (default: one a slot)", set_number, "np"},
    {"-H|--hosts|--host", "LIST", "hosts and slots: h1:2,h2:2", set_hosts, NULL},
    {"--hostfile|-hostfile", "FILE", "hosts from a file, a line \"host slots=N\" each",
     set_hostfile, NULL},
    {"-x", "VAR[=VALUE]", "give this variable to ranks on other hosts too, or set it", set_x, NULL},
    {"-f|--file", "FILE", "run this HvdJob manifest on this machine", set_file, NULL},
    {"--name", "NAME", "the job's name", set_name, NULL},
    {"--output-filename", "DIR", "also write output to DIR/rank.N/stdout and stderr", set_output,
     NULL},
    {"--timeline-filename", "FILE", "write a Chrome trace of the collectives", set_timeline, NULL},
    {"--timeline-mark-cycles", NULL, "mark each batch in it, too", set_variable,
     "HVD_TIMELINE_MARK_CYCLES=1"},
    {"--no-timeline-mark-cycles", NULL, "the default", set_variable, "HVD_TIMELINE_MARK_CYCLES=0"},
    {"--start-timeout", "SECONDS", "limit for agents to join, and for hvd_init (30)", set_number,
     "start"},
    {"--min-np|--min-num-proc", "N", "elastic: with fewer ranks the job waits (-np)", set_number,
     "min"},
    {"--max-np|--max-num-proc", "N", "elastic: the job never has more ranks", set_number, "max"},
    {"--keep-places", NULL, "elastic: a new rank gets the number of the one that was lost",
     set_flag, "places"},
    {"--host-discovery-script", "FILE", "elastic: asked each second for hosts: host[:slots] lines",
     set_script, NULL},
    {"--slots-per-host|--slots", "N", "slots of a host that the script names without a number (1)",
     set_number, "slots"},
    {"--elastic-timeout", "SECONDS", "how long to wait below the minimum (600)", set_number,
     "elastic"},
    {"--reset-limit", "N", "replace at most so many ranks (0: no limit)", set_number, "reset"},
    {"--blacklist-cooldown-range", "MIN MAX",
     "seconds before a failed rank or host is started again: first, longest", set_cooldown, NULL},
    {"--horovod", NULL, "the program imports horovod: let it find hvd under that name", set_horovod,
     NULL},
    {"--config-file", "FILE", "options from Horovod's YAML file; the command line comes first",
     set_config, NULL},
    {"--end-with", "PID", "end the job when the program that has started hvdrun ends", set_end_with,
     NULL},
    {"--bind-to", "WHAT", "core (default), numa, none; no effect with more ranks than cores",
     set_bind, NULL},
    {"--report-bindings", NULL, "say where each rank may run", set_flag, "bindings"},
    {"--no-prefix", NULL, "print lines as they are, without [rank]<stdout>:", set_flag, "prefix"},
    {"--prefix-output-with-timestamp|-prefix-timestamp", NULL, "the time before each [rank]",
     set_flag, "stamps"},
    {"-p|--ssh-port", "PORT", "the port for ssh", set_number, "port"},
    {"-i|--ssh-identity-file", "FILE", "the private key for ssh", set_identity, NULL},
    {"--network-interface|--network-interfaces", "NAMES", "interfaces between hosts (HVD_IFACE)",
     set_setting, "IFACE"},
    {"--fusion-threshold-mb", "N", "HVD_FUSION_THRESHOLD in MiB", set_setting, "FUSION_THRESHOLD"},
    {"--cycle-time-ms", "N", "HVD_CYCLE_TIME", set_setting, "CYCLE_TIME"},
    {"--cache-capacity", "N", "HVD_CACHE_CAPACITY", set_setting, "CACHE_CAPACITY"},
    {"--no-stall-check", NULL, "do not report tensors that some ranks have not submitted",
     set_variable, "HVD_STALL_CHECK_DISABLE=1"},
    {"--stall-check", NULL, "the default", set_variable, "HVD_STALL_CHECK_DISABLE=0"},
    {"--tcp", NULL, "NCCL without InfiniBand (NCCL_IB_DISABLE=1)", set_variable,
     "NCCL_IB_DISABLE=1"},
    {"--stall-check-warning-time-seconds", "N", "HVD_STALL_CHECK_TIME_SECONDS", set_setting,
     "STALL_CHECK_TIME_SECONDS"},
    {"--stall-check-shutdown-time-seconds", "N", "HVD_STALL_SHUTDOWN_TIME_SECONDS", set_setting,
     "STALL_SHUTDOWN_TIME_SECONDS"},
    {"--log-level", "LEVEL", "HVD_LOG_LEVEL: error warn info debug trace", set_setting,
     "LOG_LEVEL"},
    {"--doctor", "[fail|warn|off]", "check hosts: before ranks start; beside them (default); never",
     set_doctor, NULL},
    {"--metrics", "[ADDR:]PORT", "each host's agent serves /metrics, /ready, /healthz there",
     set_metrics, NULL},
    {"--check-build|-cb", NULL, "list frameworks, controllers and operations", set_flag, "check"},
    {"--explain-states", NULL, "print the table of states of a rank", set_flag, "states"},
    {"-v|--verbose", NULL, "say what is being done; twice: more", set_flag, "verbose"},
    {"-vv", NULL, "the same as -v -v", set_flag, "verbose twice"},
    {"-h|--help", NULL, "this text", set_flag, "help"},
    {"--version", NULL, "the version", set_flag, "version"},
};

const struct option *options_table(size_t *ret_n)
{
    *ret_n = sizeof(options) / sizeof(options[0]);
    return options;
}

static const struct number {
    const char *setting;
    int min, max;
    size_t field;
} numbers[] = {
    {"np", 1, MEMBER_RANKS_MAX, offsetof(struct job, np)},
    {"min", 1, MEMBER_RANKS_MAX, offsetof(struct job, min_np)},
    {"max", 1, MEMBER_RANKS_MAX, offsetof(struct job, max_np)},
    {"slots", 1, MEMBER_RANKS_MAX, offsetof(struct job, slots_per_host)},
    {"reset", 0, 1 << 30, offsetof(struct job, reset_limit)},
    {"elastic", 1, OPTIONS_SECONDS_MAX, offsetof(struct job, elastic_timeout)},
    {"start", 1, START_TIMEOUT_MAX_S, offsetof(struct job, start_timeout)},
    {"port", 1, 65535, offsetof(struct job, ssh_port)},
};

static int set_number(struct options *o, const char *value, const char *setting, struct err *err)
{
    const struct number *n = numbers;
    while (strcmp(n->setting, setting) != 0)
        n++;
    return options_int(value, n->min, n->max, (int *)((char *)&o->job + n->field), err);
}

/* Parses "MIN MAX". */
static int set_cooldown(struct options *o, const char *value, const char *setting, struct err *err)
{
    char first[24];
    int min = 0, max = 0;
    size_t n = strcspn(value, " ");
    (void)setting;
    if (n >= sizeof(first) || !value[n])
        return err_set(err, EINVAL, "\"%.40s\": want two numbers of seconds, MIN MAX", value);
    snprintf(first, sizeof(first), "%.*s", (int)n, value);
    int rc = options_int(first, 1, COOLDOWN_MAX_S, &min, err);
    if (rc == 0)
        rc = options_int(value + n + 1, 1, COOLDOWN_MAX_S, &max, err);
    if (rc == 0 && min > max)
        rc = err_set(err, EINVAL, "%d is more than %d: want MIN MAX", min, max);
    if (rc < 0)
        return rc;
    o->job.cooldown_min = min;
    o->job.cooldown_max = max;
    return 0;
}

static int set_hosts(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    return hosts_parse(&o->job.hosts, value, err);
}

static int set_hostfile(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    return hosts_read(&o->job.hosts, value, err);
}

static int set_x(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    const char *equals = strchr(value, '=');
    size_t len = equals ? (size_t)(equals - value) : strlen(value);
    char name[256];
    if (len == 0 || len >= sizeof(name))
        return err_set(err, EINVAL, "\"%s\": want VAR or VAR=VALUE", value);
    memcpy(name, value, len);
    name[len] = '\0';
    const char *content = equals ? equals + 1 : getenv(name);
    if (!content)
        return err_set(err, EINVAL,
                       "hvdrun's environment has no variable %s: set it, or write -x %s=VALUE",
                       name, name);
    return job_setenv(&o->job, name, content) < 0 ? err_set(err, ENOMEM, "no memory") : 0;
}

static int set_path(char **field, const char *value, struct err *err)
{
    if (!*value)
        return err_set(err, EINVAL, "an empty name");
    char *path = job_absolute(value);
    if (!path)
        return err_set(err, ENOMEM, "no memory, or no current directory");
    free(*field);
    *field = path;
    return 0;
}

/* The script runs without a shell, so it must be an executable file. */
static int set_script(struct options *o, const char *value, const char *setting, struct err *err)
{
    struct stat st;
    (void)setting;
    if (*value && (stat(value, &st) < 0 || access(value, X_OK) < 0))
        return err_sys(err, errno, "%s", value);
    if (*value && !S_ISREG(st.st_mode))
        return err_set(err, EINVAL, "%s: not a program", value);
    return set_path(&o->job.discovery_script, value, err);
}

static int set_output(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    return set_path(&o->job.output_dir, value, err);
}

static int set_timeline(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    auto_free char *path = NULL;
    int rc = set_path(&path, value, err);
    if (rc == 0 && job_setenv(&o->job, "HVD_TIMELINE", path) < 0)
        rc = err_set(err, ENOMEM, "no memory");
    return rc;
}

static int set_bind(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    if (bind_to_parse(value, &o->job.bind_to) == 0)
        return 0;
    return err_set(err, EINVAL, "\"%s\": want core, numa or none", value);
}

static int set_file(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    o->job_file = value;
    return *value ? 0 : err_set(err, EINVAL, "an empty name");
}

static int set_name(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    if (!*value || strlen(value) >= MEMBER_NAME_MAX)
        return err_set(err, EINVAL, "want a name of 1 to %d bytes", MEMBER_NAME_MAX - 1);
    if (value[0] == '-' || value[strcspn(value, " \t\r\n\033/")])
        return err_set(err, EINVAL, "\"%.60s\": want a name without / and spaces, - not in front",
                       value);
    free(o->job.name);
    o->job.name = strdup(value);
    return o->job.name ? 0 : err_set(err, ENOMEM, "no memory");
}

static int set_identity(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    /* ssh would only warn about a missing file and continue. */
    if (*value && access(value, R_OK) < 0)
        return err_sys(err, errno, "%s", value);
    return set_path(&o->job.ssh_identity, value, err);
}

static int set_doctor(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    if (!value) {
        o->what = OPTIONS_DOCTOR;
        return 0;
    }
    o->job.doctor_said = true;
    if (doctor_policy_parse(value, &o->job.doctor) == 0)
        return 0;
    return err_set(err, EINVAL, "\"%.40s\": want fail, warn or off", value);
}

static int set_metrics(struct options *o, const char *value, const char *setting, struct err *err)
{
    char address[64];
    int port;
    (void)setting;
    int rc = pages_parse(value, address, sizeof(address), &port, err);
    if (rc < 0)
        return rc;
    free(o->job.metrics);
    o->job.metrics = strdup(value);
    return o->job.metrics ? 0 : err_set(err, ENOMEM, "no memory");
}

/* Checks what the ranks would check too, so that an error is reported before they start. */
static int check_setting(const char *setting, const char *value, struct err *err)
{
    double number;
    int n;
    if (strcmp(setting, "LOG_LEVEL") == 0)
        return options_level(value, err);
    if (strcmp(setting, "CACHE_CAPACITY") == 0)
        return options_int(value, 0, 1 << 20, &n, err);
    if (strcmp(setting, "IFACE") == 0)
        return 0;
    return options_number(value, 0, OPTIONS_SECONDS_MAX, &number, err);
}

/* Sets an option that is a setting of the ranks. */
static int set_setting(struct options *o, const char *value, const char *setting, struct err *err)
{
    char name[96], text[64];
    int n;
    snprintf(name, sizeof(name), "HVD_%s", setting);
    if (strcmp(setting, "FUSION_THRESHOLD") == 0) {
        int rc = options_int(value, 0, 1 << 20, &n, err);
        if (rc < 0)
            return rc;
        snprintf(text, sizeof(text), "%dM", n);
        value = text;
    } else {
        int rc = check_setting(setting, value, err);
        if (rc < 0)
            return rc;
    }
    if (strcmp(setting, "IFACE") == 0)
        setenv(name, value, 1); /* hvdrun listens on it, too */
    return job_setenv(&o->job, name, value) < 0 ? err_set(err, ENOMEM, "no memory") : 0;
}

/* Each agent looks for the folder on its own host. That of this host is looked for here, too, so
 * that an error is reported before ranks start. */
static int set_horovod(struct options *o, const char *value, const char *setting, struct err *err)
{
    char folder[PATH_MAX];
    (void)value, (void)setting;
    int rc = horovod_folder(folder, sizeof(folder), err);
    if (rc == 0 && job_setenv(&o->job, "HVD_HOROVOD", "1") < 0)
        rc = err_set(err, ENOMEM, "no memory");
    o->horovod = rc == 0;
    return rc;
}

/* setting: "NAME=value". */
static int set_variable(struct options *o, const char *value, const char *setting, struct err *err)
{
    char name[64];
    size_t n = strcspn(setting, "=");
    (void)value;
    snprintf(name, sizeof(name), "%.*s", (int)n, setting);
    return job_setenv(&o->job, name, setting + n + 1) < 0 ? err_set(err, ENOMEM, "no memory") : 0;
}

void options_variable(const struct option *option, char *dst, size_t size)
{
    *dst = '\0';
    if (option->set == set_setting)
        snprintf(dst, size, "HVD_%s", option->setting);
    else if (option->set == set_variable)
        snprintf(dst, size, "%.*s", (int)strcspn(option->setting, "="), option->setting);
    else if (option->set == set_timeline)
        snprintf(dst, size, "HVD_TIMELINE");
}

static int set_config(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    o->config_file = value; /* read when the command line is known */
    return *value ? 0 : err_set(err, EINVAL, "an empty name");
}

/* The process id tells whether that program had ended before this call. */
static int set_end_with(struct options *o, const char *value, const char *setting, struct err *err)
{
    int pid = 0;
    (void)o, (void)setting;
    int rc = options_int(value, 1, INT_MAX, &pid, err);
    if (rc < 0)
        return rc;
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
        return err_sys(err, errno, "prctl");
    if (getppid() != pid)
        return err_set(err, EINVAL, "process %d has not started this one, or has ended", pid);
    return 0;
}

static int set_flag(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)value, (void)err;
    if (strcmp(setting, "bindings") == 0)
        o->job.report_bindings = true;
    else if (strcmp(setting, "places") == 0)
        o->job.keep_places = true;
    else if (strcmp(setting, "prefix") == 0)
        o->job.no_prefix = true;
    else if (strcmp(setting, "stamps") == 0)
        o->job.stamps = true;
    else if (strcmp(setting, "verbose") == 0)
        o->job.verbose++;
    else if (strcmp(setting, "verbose twice") == 0)
        o->job.verbose += 2;
    else if (strcmp(setting, "check") == 0)
        o->what = OPTIONS_CHECK_BUILD;
    else if (strcmp(setting, "states") == 0)
        o->what = OPTIONS_EXPLAIN_STATES;
    else if (strcmp(setting, "help") == 0)
        o->what = OPTIONS_HELP;
    else
        o->what = OPTIONS_VERSION;
    return 0;
}
