/* SPDX-License-Identifier: Apache-2.0
 *
 * session: see session.h.
 */
#include "diagnostics/cli/session.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "diagnostics/registry.h"

#define OPTIONS_MAX    65536
#define NPD_TIMEOUT_MS 4000

/* Reads DIR/options: the job that the captured machine was recorded for. */
static int read_options(struct session *s, const char *dir, struct cli_job *ret, struct err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/options", dir);
    int rc = fd_read_file(path, OPTIONS_MAX, &s->options, NULL);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return err_sys(err, -rc, "%s", path);
    return cli_parse_job(ret, s->options, path, err);
}

static void apply(struct setting *s, const struct cli_job *job)
{
    if (job->profiles)
        s->profiles = job->profiles;
    if (job->ranks)
        s->ranks = job->ranks;
    if (job->gpus >= 0)
        s->gpus = job->gpus;
    if (job->gpus > 0 && !job->local_ranks && s->local_ranks == 1)
        s->local_ranks = job->gpus; /* no launcher variable gave the number */
    if (job->local_ranks)
        s->local_ranks = job->local_ranks;
    if (s->ranks && s->ranks < s->local_ranks)
        s->ranks = s->local_ranks;
    if (job->level)
        s->level = job->level;
    if (job->timeout_ms)
        s->timeout_ms = job->timeout_ms;
    if (job->data)
        s->data_dir = job->data;
    if (job->networks)
        s->interfaces = job->networks;
}

static int prepare(struct session *s, const struct cli *cli, struct err *err)
{
    struct cli_job captured = {.gpus = -1};
    setting_guess(&s->setting, &s->machine);
    if (cli->format == CLI_NPD)
        s->setting.timeout_ms = NPD_TIMEOUT_MS;
    int rc = cli->root ? read_options(s, cli->root, &captured, err) : 0;
    if (rc < 0)
        return rc;
    apply(&s->setting, &captured);
    apply(&s->setting, &cli->job);
    /* --profile gpu means one GPU for each local rank: a machine without GPUs is then a finding. */
    if ((cli->job.profiles & PROFILE_GPU) && s->setting.gpus < 0)
        s->setting.gpus = s->setting.local_ranks;
    s->setting.prober = cli->prober;
    if (cli->job.ranks && cli->job.local_ranks > cli->job.ranks)
        return err_set(err, EINVAL, "--local-ranks %d: more than --ranks %d", cli->job.local_ranks,
                       cli->job.ranks);
    return 0;
}

static void find_host(struct session *s)
{
    if (machine_line(&s->machine, s->host, sizeof(s->host), "proc/sys/kernel/hostname") == 0 &&
        s->host[0])
        return;
    if (!s->machine.live || gethostname(s->host, sizeof(s->host)) < 0)
        snprintf(s->host, sizeof(s->host), "unknown");
    s->host[sizeof(s->host) - 1] = '\0';
}

/* A folder "root" is not enough to recognize a captured machine: / often has one. */
static int know_machine(const char *dir, struct err *err)
{
    static const char *const marks[] = {"options", "answers", "expected.json"};
    char path[PATH_MAX];
    struct stat st;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, marks[i]);
        if (stat(path, &st) == 0)
            return 0;
    }
    if (stat(dir, &st) < 0)
        return err_sys(err, errno, "--root: %s", dir);
    return err_set(err, EINVAL,
                   "--root: %s is not a captured machine; `hvd-doctor gather DIR` makes one", dir);
}

int session_open(struct session *s, const struct cli *cli, struct err *err)
{
    struct stat st;
    memset(s, 0, sizeof(*s));
    s->machine.root = -1;
    if (cli->prober && stat(cli->prober, &st) < 0)
        return err_sys(err, errno, "--prober: %s", cli->prober);
    int rc = cli->root ? know_machine(cli->root, err) : 0;
    if (rc < 0)
        return rc;
    rc = cli->root ? machine_open_captured(&s->machine, cli->root, err)
                   : machine_open_live(&s->machine, err);
    if (rc < 0)
        return cli->root ? err_prefix(err, "--root") : rc;
    s->rules = rules_builtin();
    if (cli->rules) {
        rc = rules_read(cli->rules, &s->own_rules, err);
        s->rules = s->own_rules;
    }
    if (rc == 0)
        rc = prepare(s, cli, err);
    if (rc == 0 && redact_create(&s->redact, &s->machine) < 0)
        rc = err_set(err, ENOMEM, "no memory");
    find_host(s);
    if (s->redact)
        redact_string(s->redact, s->host, sizeof(s->host));
    s->choice = (struct choice){.only = cli->only.v,
                                .nonly = cli->only.n,
                                .skip = cli->skip.v,
                                .nskip = cli->skip.n,
                                .silences = cli->silences,
                                .nsilences = cli->nsilences,
                                .strict = cli->strict};
    return rc;
}

void session_close(struct session *s)
{
    redact_destroy(s->redact);
    rules_destroy(s->own_rules);
    machine_close(&s->machine);
    free(s->options);
    memset(s, 0, sizeof(*s));
    s->machine.root = -1;
}

/* Refuses --only with a check of a higher level than --level: the verdict would silently leave
 * the check out. */
static int check_levels(const struct session *s, struct err *err)
{
    for (size_t i = 0; i < s->choice.nonly; i++) {
        const struct check *c;
        int least = 0;
        for (size_t k = 0; (c = registry_at(k)); k++) {
            if (registry_matches(c, s->choice.only[i]) && (least == 0 || c->level < least))
                least = c->level;
        }
        if (least > s->setting.level)
            return err_set(err, EINVAL, "--only: %s: needs --level %d", s->choice.only[i], least);
    }
    return 0;
}

struct hiding {
    const struct redact *redact;
    doctor_result_f *cb; /* NULL: none */
    void *arg;
};

static void hide_secrets(void *arg, struct result *r)
{
    const struct hiding *h = arg;
    redact_string(h->redact, r->summary, sizeof(r->summary));
    redact_string(h->redact, r->observed, sizeof(r->observed));
    redact_string(h->redact, r->expected, sizeof(r->expected));
    redact_string(h->redact, r->why, sizeof(r->why));
    for (int place = 0; place < FIX_PLACES; place++)
        redact_string(h->redact, r->fix[place], sizeof(r->fix[place]));
    redact_string(h->redact, r->silence_reason, sizeof(r->silence_reason));
    if (h->cb)
        h->cb(h->arg, r);
}

int session_run(struct session *s, doctor_result_f *cb, void *arg, struct report *ret,
                struct err *err)
{
    struct hiding hiding = {.redact = s->redact, .cb = cb, .arg = arg};
    int rc = check_levels(s, err);
    if (rc == 0)
        rc = doctor_run(&s->machine, &s->setting, &s->choice, s->rules, hide_secrets, &hiding, ret,
                        err);
    if (rc == 0 && ret->n == 0) {
        report_fini(ret);
        rc = err_set(err, EINVAL, "--skip leaves no check to run");
    }
    return rc;
}

struct json_origin session_origin(const struct session *s)
{
    return (struct json_origin){.host = s->host, .time = (int64_t)(clock_wall_us() / 1000000)};
}
