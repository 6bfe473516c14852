/* SPDX-License-Identifier: Apache-2.0
 *
 * options: see options.h.
 */
#include "agent/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/log.h"
#include "core/member/pages.h"
#include "core/member/protocol.h"

#define START_TIMEOUT_S     30
#define START_TIMEOUT_MAX_S 86400

typedef int option_f(struct options *o, const char *value, const char *setting, struct err *err);

static int set_np(struct options *o, const char *value, const char *setting, struct err *err);
static int set_hosts(struct options *o, const char *value, const char *setting, struct err *err);
static int set_hostfile(struct options *o, const char *value, const char *setting, struct err *err);
static int set_x(struct options *o, const char *value, const char *setting, struct err *err);
static int set_output(struct options *o, const char *value, const char *setting, struct err *err);
static int set_timeline(struct options *o, const char *value, const char *setting, struct err *err);
static int set_timeout(struct options *o, const char *value, const char *setting, struct err *err);
static int set_bind(struct options *o, const char *value, const char *setting, struct err *err);
static int set_file(struct options *o, const char *value, const char *setting, struct err *err);
static int set_name(struct options *o, const char *value, const char *setting, struct err *err);
static int set_port(struct options *o, const char *value, const char *setting, struct err *err);
static int set_identity(struct options *o, const char *value, const char *setting, struct err *err);
static int set_setting(struct options *o, const char *value, const char *setting, struct err *err);
static int set_doctor(struct options *o, const char *value, const char *setting, struct err *err);
static int set_metrics(struct options *o, const char *value, const char *setting, struct err *err);
static int set_flag(struct options *o, const char *value, const char *setting, struct err *err);

/* Names of one option with | between them. arg NULL: it takes none; in brackets: it need not have
 * one, and takes the next word only if that is one of those. setting: what set_setting sets,
 * or which flag set_flag raises. */
static const struct option {
    const char *names, *arg, *help;
    option_f *set;
    const char *setting;
} options[] = {
    {"-np|-n|--num-proc", "N", "number of ranks (default: one a slot)", set_np, NULL},
    {"-H|--hosts|--host", "LIST", "hosts and slots: h1:2,h2:2", set_hosts, NULL},
    {"--hostfile|-hostfile", "FILE", "the same, a line \"host slots=N\" each", set_hostfile, NULL},
    {"-x", "VAR[=VALUE]", "give this variable to ranks on other hosts too, or set it", set_x, NULL},
    {"-f|--file", "FILE", "run this HvdJob manifest on this machine", set_file, NULL},
    {"--name", "NAME", "the job's name", set_name, NULL},
    {"--output-filename", "DIR", "also write output to DIR/rank.N/stdout and stderr", set_output,
     NULL},
    {"--timeline-filename", "FILE", "write a Chrome trace of the collectives", set_timeline, NULL},
    {"--start-timeout", "SECONDS", "to reach all hosts, and for hvd_init (30)", set_timeout, NULL},
    {"--bind-to", "WHAT", "core (default), numa, none; none when ranks outnumber cores", set_bind,
     NULL},
    {"--report-bindings", NULL, "say where each rank may run", set_flag, "bindings"},
    {"--no-prefix", NULL, "print lines as they are, without [rank]<stdout>:", set_flag, "prefix"},
    {"-p|--ssh-port", "PORT", "for ssh", set_port, NULL},
    {"-i|--ssh-identity-file", "FILE", "for ssh", set_identity, NULL},
    {"--network-interface|--network-interfaces", "NAMES", "between hosts (HVD_IFACE)", set_setting,
     "IFACE"},
    {"--fusion-threshold-mb", "N", "HVD_FUSION_THRESHOLD in MiB", set_setting, "FUSION_THRESHOLD"},
    {"--cycle-time-ms", "N", "HVD_CYCLE_TIME", set_setting, "CYCLE_TIME"},
    {"--cache-capacity", "N", "HVD_CACHE_CAPACITY", set_setting, "CACHE_CAPACITY"},
    {"--stall-check-warning-time-seconds", "N", "HVD_STALL_CHECK_TIME_SECONDS", set_setting,
     "STALL_CHECK_TIME_SECONDS"},
    {"--stall-check-shutdown-time-seconds", "N", "HVD_STALL_SHUTDOWN_TIME_SECONDS", set_setting,
     "STALL_SHUTDOWN_TIME_SECONDS"},
    {"--log-level", "LEVEL", "HVD_LOG_LEVEL: error warn info debug trace", set_setting,
     "LOG_LEVEL"},
    {"--doctor", "[fail|warn|off]", "check hosts before ranks start; beside (default); never",
     set_doctor, NULL},
    {"--metrics", "[ADDR:]PORT", "each host's agent serves /metrics, /ready, /healthz there",
     set_metrics, NULL},
    {"--check-build|-cb", NULL, "list frameworks, controllers and operations", set_flag, "check"},
    {"--explain-states", NULL, "print the table of states of a rank", set_flag, "states"},
    {"-v|--verbose", NULL, "say what is being done; twice: more", set_flag, "verbose"},
    {"-h|--help", NULL, "this text", set_flag, "help"},
    {"--version", NULL, "the version", set_flag, "version"},
};

/* A decimal integer in [min, max]. */
static int parse_int(const char *value, int min, int max, int *ret, struct err *err)
{
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (errno || end == value || *end || n < min || n > max)
        return err_set(err, EINVAL, "\"%s\": want an integer from %d to %d", value, min, max);
    *ret = (int)n;
    return 0;
}

/* A finite number in [min, max]. */
static int parse_number(const char *value, double min, double max, double *ret, struct err *err)
{
    char *end;
    double n = strtod(value, &end);
    if (end == value || *end || !(n >= min && n <= max))
        return err_set(err, EINVAL, "\"%.40s\": want a number from %g to %.0f", value, min, max);
    *ret = n;
    return 0;
}

static int set_np(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    return parse_int(value, 1, MEMBER_RANKS_MAX, &o->job.np, err);
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

static int check_level(const char *value, struct err *err)
{
    enum log_level level;
    if (strcasecmp(value, "fatal") == 0 || log_level_parse(value, &level) == 0)
        return 0;
    return err_set(err, EINVAL, "\"%.40s\": want error, warn, info, debug or trace", value);
}

/* A setting of the ranks as they will have it, HOROVOD_'s too; NULL: none. *ret_name: which it is.
 */
static const char *find_setting(const struct job *job, const char *name, char *ret_name,
                                size_t size)
{
    static const char *const prefixes[] = {"HVD_", "HOROVOD_"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(ret_name, size, "%s%s", prefixes[i], name);
        const char *value = job_getenv(job, ret_name);
        if (value && *value)
            return value;
    }
    return NULL;
}

int options_check_level(const struct job *job, struct err *err)
{
    char name[64];
    const char *value = find_setting(job, "LOG_LEVEL", name, sizeof(name));
    int rc = value ? check_level(value, err) : 0;
    return rc < 0 ? err_prefix(err, "%s", name) : 0;
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
        return err_set(err, EINVAL, "there is no variable %s here", name);
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

static int set_timeout(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    return parse_int(value, 1, START_TIMEOUT_MAX_S, &o->job.start_timeout, err);
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
    free(o->job.name);
    o->job.name = strdup(value);
    return o->job.name ? 0 : err_set(err, ENOMEM, "no memory");
}

static int set_port(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    return parse_int(value, 1, 65535, &o->job.ssh_port, err);
}

static int set_identity(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)setting;
    /* ssh would only warn and go on without it. */
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

int options_doctor(struct job *job, struct err *err)
{
    const char *value = job_getenv(job, "HVD_DOCTOR");
    if (job->doctor_said || !value || !*value || doctor_policy_parse(value, &job->doctor) == 0)
        return 0;
    return err_set(err, EINVAL, "HVD_DOCTOR: \"%.40s\": want fail, warn or off", value);
}

int options_start_timeout(struct job *job, struct err *err)
{
    char name[64];
    double seconds = START_TIMEOUT_S;
    const char *value = find_setting(job, "START_TIMEOUT", name, sizeof(name));
    if (job->start_timeout)
        return 0;
    int rc = value ? parse_number(value, 0.1, START_TIMEOUT_MAX_S, &seconds, err) : 0;
    if (rc < 0)
        return err_prefix(err, "%s", name);
    job->start_timeout = (int)ceil(seconds);
    return 0;
}

/* What the ranks would refuse, each for itself, when all of them have started. */
static int check_setting(const char *setting, const char *value, struct err *err)
{
    double number;
    int n;
    if (strcmp(setting, "LOG_LEVEL") == 0)
        return check_level(value, err);
    if (strcmp(setting, "CACHE_CAPACITY") == 0)
        return parse_int(value, 0, 1 << 20, &n, err);
    if (strcmp(setting, "IFACE") == 0)
        return 0;
    return parse_number(value, 0, 365 * 86400, &number, err);
}

/* An option that is a setting of the ranks. */
static int set_setting(struct options *o, const char *value, const char *setting, struct err *err)
{
    char name[96], text[64];
    int n;
    snprintf(name, sizeof(name), "HVD_%s", setting);
    if (strcmp(setting, "FUSION_THRESHOLD") == 0) {
        int rc = parse_int(value, 0, 1 << 20, &n, err);
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
        setenv(name, value, 1); /* hvdrun itself listens there, too */
    return job_setenv(&o->job, name, value) < 0 ? err_set(err, ENOMEM, "no memory") : 0;
}

static int set_flag(struct options *o, const char *value, const char *setting, struct err *err)
{
    (void)value, (void)err;
    if (strcmp(setting, "bindings") == 0)
        o->job.report_bindings = true;
    else if (strcmp(setting, "prefix") == 0)
        o->job.no_prefix = true;
    else if (strcmp(setting, "verbose") == 0)
        o->job.verbose++;
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

/* ---- the walk ------------------------------------------------------------------------------- */

/* word up to n bytes is one of a|b|c. */
static bool is_name(const char *names, const char *word, size_t n)
{
    while (*names) {
        size_t len = strcspn(names, "|");
        if (len == n && strncmp(names, word, n) == 0)
            return true;
        names += len + (names[len] == '|');
    }
    return false;
}

static bool is_optional(const struct option *option)
{
    size_t n = strlen(option->arg);
    return option->arg[0] == '[' && option->arg[n - 1] == ']';
}

/* Is word a value that this option may have? One in brackets lists them. */
static bool is_value(const struct option *option, const char *word)
{
    const char *arg = option->arg;
    char list[64];
    if (!is_optional(option))
        return true;
    snprintf(list, sizeof(list), "%.*s", (int)strlen(arg) - 2, arg + 1);
    return is_name(list, word, strlen(word));
}

/* The option a word names; *ret_inline: its value after =, NULL without. */
static const struct option *find_option(const char *word, const char **ret_inline)
{
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (is_name(options[i].names, word, n)) {
            *ret_inline = word[n] == '=' ? word + n + 1 : NULL;
            return &options[i];
        }
    }
    return NULL;
}

static int copy_command(struct job *job, char **words)
{
    size_t n = strings_count(words);
    if (n == 0)
        return 0;
    job->argv = calloc(n + 1, sizeof(*job->argv));
    for (size_t i = 0; job->argv && i < n; i++) {
        job->argv[i] = strdup(words[i]);
        if (!job->argv[i])
            return -ENOMEM;
    }
    return job->argv ? 0 : -ENOMEM;
}

int options_parse(struct options *ret, int argc, char **argv, struct err *err)
{
    *ret = (struct options){0};
    job_init(&ret->job);
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        const char *word = argv[i++], *value;
        if (strcmp(word, "--") == 0)
            break;
        const struct option *option = find_option(word, &value);
        if (!option)
            return err_set(err, EINVAL, "unknown option %s; see hvdrun --help", word);
        if (!option->arg && value)
            return err_set(err, EINVAL, "%s takes no value", option->names);
        if (option->arg && !value) {
            if (i < argc && is_value(option, argv[i]))
                value = argv[i++];
            else if (!is_optional(option))
                return err_set(err, EINVAL, "%s needs %s", word, option->arg);
        }
        int rc = option->set(ret, value, option->setting, err);
        if (rc < 0)
            return err_prefix(err, "%.*s", (int)strcspn(word, "="), word);
    }
    if (copy_command(&ret->job, argv + i) < 0)
        return err_set(err, ENOMEM, "no memory");
    if (ret->what == OPTIONS_RUN && !ret->job.argv && !ret->job_file)
        return err_set(err, EINVAL, "no command to run; see hvdrun --help");
    if (ret->what == OPTIONS_DOCTOR && (ret->job.argv || ret->job_file))
        return err_set(err, EINVAL, "--doctor: \"%s\": want fail, warn or off before a command",
                       ret->job.argv ? ret->job.argv[0] : ret->job_file);
    if (ret->job.argv && ret->job_file)
        return err_set(err, EINVAL, "a command (%s) and a job file (%s): want one of them",
                       ret->job.argv[0], ret->job_file);
    return 0;
}

void options_help(void)
{
    printf("usage: hvdrun [option]... command [argument]...\n"
           "       hvdrun [option]... -f job.yaml\n"
           "\n"
           "Runs a command on many ranks, on this machine or on several, and ends when all have.\n"
           "\n"
           "  hvdrun -np 4 python3 train.py                    4 ranks here\n"
           "  hvdrun -np 8 -H h1:4,h2:4 python3 train.py       on two hosts, by ssh\n"
           "  hvdrun -np 2 --output-filename out ./a.out       output into files, too\n"
           "  hvdrun -f job.yaml                               an HvdJob manifest, here\n"
           "  hvdrun --doctor -H h1,h2                         no job: tests hosts and network\n"
           "\n"
           "options:\n");
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        char head[96];
        int n = 0;
        for (const char *p = options[i].names; *p && n < 70; p++)
            n += snprintf(head + n, sizeof(head) - (size_t)n, *p == '|' ? ", " : "%c", *p);
        snprintf(head + n, sizeof(head) - (size_t)n, "%s%s", options[i].arg ? " " : "",
                 options[i].arg ? options[i].arg : "");
        printf("  %s%s%-*s%s\n", head, strlen(head) > 28 ? "\n  " : "",
               strlen(head) > 28 ? 30 : 30 - (int)strlen(head), "", options[i].help);
    }
    printf("\n"
           "exit code: that of the first rank that failed, 128 + n for signal n; 127: command not\n"
           "found; 126: it cannot be run; 2: wrong usage; 1: anything else that went wrong.\n"
           "\n"
           "environment: HVD_RSH_AGENT replaces ssh (called as: AGENT host command...); HVD_IFACE\n"
           "names the network interface towards the other hosts; HVD_CORE_DUMPS=1 allows core "
           "dumps;\n"
           "HVD_DOCTOR is --doctor's default.\n");
}
