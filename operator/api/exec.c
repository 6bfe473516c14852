/* SPDX-License-Identifier: Apache-2.0
 *
 * exec: see exec.h.
 */
#include "operator/api/exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/cleanup.h"
#include "core/base/fd.h"
#include "core/json/json.h"
#include "operator/objects/stamp.h"

#define OUT_MAX (256u << 10)
#define ERR_MAX 400 /* bytes of the plugin's standard error that go into a message */

struct exec_run {
    struct loop *loop;
    struct loop_fd out_lfd, err_lfd, end;
    struct loop_timer limit;
    struct buf out, stderr_text;
    pid_t pid;
    int out_fd, err_fd;
    char *name, *hint, *api_version;
    exec_done_f *done;
    void *arg;
};

/* ---- the output ------------------------------------------------------------------------------ */

void exec_credential_fini(struct exec_credential *c)
{
    free(c->token);
    free(c->cert_pem);
    free(c->key_pem);
    *c = (struct exec_credential){0};
}

static int copy(const char *text, char **dst, struct err *err)
{
    if (!text || !*text)
        return 0;
    *dst = strdup(text);
    return *dst ? 0 : err_set(err, ENOMEM, "no memory");
}

/* Parses the status into c; the caller frees c, also on failure. */
static int take_status(json_t *j, const char *api_version, struct exec_credential *c,
                       struct err *err)
{
    const char *kind = "", *version = "", *token = NULL, *cert = NULL, *key = NULL;
    const char *expires = "";
    int rc = json_expect(j, "an ExecCredential", err, "{s:s, s:s, s:{s?s, s?s, s?s, s?s}}", "kind",
                         &kind, "apiVersion", &version, "status", "token", &token,
                         "clientCertificateData", &cert, "clientKeyData", &key,
                         "expirationTimestamp", &expires);
    if (rc < 0)
        return rc;
    if (strcmp(kind, "ExecCredential") != 0 || strcmp(version, api_version) != 0)
        return err_set(err, EINVAL, "want an ExecCredential of %s, got %.40s of %.80s", api_version,
                       kind, version);
    if (token && strpbrk(token, "\r\n"))
        return err_set(err, EINVAL, "an ExecCredential: the token has a line break in it");
    if (*expires && stamp_parse(expires, &c->expires_us) < 0)
        return err_set(err, EINVAL, "an ExecCredential: expirationTimestamp is no time");
    if (!cert != !key || (!cert && (!token || !*token)))
        return err_set(err, EINVAL,
                       "an ExecCredential: want a token, or a certificate and its key");
    rc = copy(token, &c->token, err);
    if (rc == 0)
        rc = copy(cert, &c->cert_pem, err);
    return rc < 0 ? rc : copy(key, &c->key_pem, err);
}

int exec_parse(const char *text, size_t len, const char *api_version, struct exec_credential *ret,
               struct err *err)
{
    struct exec_credential c = {.expires_us = INT64_MAX};
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, "an ExecCredential", &j, err);
    if (rc == 0)
        rc = take_status(j, api_version, &c, err);
    if (rc < 0)
        exec_credential_fini(&c);
    else
        *ret = c;
    return rc;
}

/* ---- running it ------------------------------------------------------------------------------ */

static void run_free(struct exec_run *r)
{
    loop_fd_stop(r->loop, &r->out_lfd);
    loop_fd_stop(r->loop, &r->err_lfd);
    loop_fd_stop(r->loop, &r->end);
    loop_timer_stop(r->loop, &r->limit);
    if (r->out_fd >= 0)
        close(r->out_fd);
    if (r->err_fd >= 0)
        close(r->err_fd);
    if (r->out.data)
        sodium_memzero(r->out.data, r->out.len);
    buf_fini(&r->out);
    buf_fini(&r->stderr_text);
    free(r->name);
    free(r->hint);
    free(r->api_version);
    free(r);
}

void exec_cancel(struct exec_run *r)
{
    if (!r)
        return;
    if (r->pid > 0) {
        kill(-r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0); /* short: the process was killed */
    }
    run_free(r);
}

/* Reads what is available; keeps at most max bytes in dst. True at the end of the file, or after an
 * error. */
static bool drain(int fd, struct buf *dst, size_t max)
{
    char bytes[4096];
    for (;;) {
        ssize_t n = read(fd, bytes, sizeof(bytes));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 || errno != EAGAIN;
        size_t room = dst->len < max ? max - dst->len : 0;
        buf_put(dst, bytes, (size_t)n < room ? (size_t)n : room);
    }
}

static void on_out(void *arg, uint32_t events)
{
    struct exec_run *r = arg;
    (void)events;
    if (drain(r->out_fd, &r->out, OUT_MAX + 1))
        loop_fd_stop(r->loop, &r->out_lfd);
}

static void on_err(void *arg, uint32_t events)
{
    struct exec_run *r = arg;
    (void)events;
    if (drain(r->err_fd, &r->stderr_text, ERR_MAX))
        loop_fd_stop(r->loop, &r->err_lfd);
}

static int judge(struct exec_run *r, int status, struct exec_credential *ret, struct err *err)
{
    int rc;
    buf_put_u8(&r->stderr_text, 0);
    if (r->out.failed || r->stderr_text.failed)
        return err_set(err, ENOMEM, "no memory for what %s printed", r->name);
    const char *text = (const char *)r->stderr_text.data;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && r->out.len == 0)
        return err_set(err, ENOENT, "credential plugin %s did not start: %s %s", r->name, text,
                       r->hint ? r->hint : "");
    if (WIFSIGNALED(status))
        return err_set(err, ETIMEDOUT, "credential plugin %s ended with signal %d: %s", r->name,
                       WTERMSIG(status), text);
    if (WEXITSTATUS(status) != 0)
        return err_set(err, EACCES, "credential plugin %s ended with exit code %d: %s", r->name,
                       WEXITSTATUS(status), text);
    if (r->out.len > OUT_MAX)
        return err_set(err, EMSGSIZE, "credential plugin %s printed more than %u bytes", r->name,
                       OUT_MAX);
    rc = exec_parse((const char *)r->out.data, r->out.len, r->api_version, ret, err);
    return rc < 0 ? err_prefix(err, "credential plugin %s", r->name) : 0;
}

static void on_end(void *arg, uint32_t events)
{
    struct exec_run *r = arg;
    struct exec_credential got = {0};
    struct err err = {0};
    int status;
    (void)events;
    if (waitpid(r->pid, &status, WNOHANG) != r->pid)
        return;
    drain(r->out_fd, &r->out, OUT_MAX + 1);
    drain(r->err_fd, &r->stderr_text, ERR_MAX);
    int rc = judge(r, status, &got, &err);
    exec_done_f *done = r->done;
    void *to = r->arg;
    run_free(r);
    done(to, rc == 0 ? &got : NULL, &err);
}

static void on_limit(void *arg)
{
    struct exec_run *r = arg;
    kill(-r->pid, SIGKILL);
}

/* The value of KUBERNETES_EXEC_INFO; the caller frees it. */
static char *exec_info(const struct access *a, struct err *err)
{
    auto_free char *ca_text = NULL;
    auto_json json_t *spec = json_pack("{s:b}", "interactive", 0);
    const char *ca = a->ca_pem;
    if (a->exec.cluster_info) {
        if (!ca && a->ca_file && fd_read_file(a->ca_file, 1u << 20, &ca_text, NULL) == 0)
            ca = ca_text;
        json_t *cluster = json_pack("{s:s}", "server", a->server);
        if (cluster && a->tls_server_name)
            json_put(&cluster, "tls-server-name", json_string(a->tls_server_name));
        if (cluster && a->proxy_url)
            json_put(&cluster, "proxy-url", json_string(a->proxy_url));
        if (cluster && ca)
            json_put(&cluster, "certificate-authority-data", json_bytes(ca, strlen(ca)));
        if (cluster && a->insecure)
            json_put(&cluster, "insecure-skip-tls-verify", json_true());
        json_put(&spec, "cluster", cluster);
    }
    auto_json json_t *j = json_pack("{s:s, s:s, s:O}", "apiVersion", a->exec.api_version, "kind",
                                    "ExecCredential", "spec", spec);
    char *text = json_write(j);
    if (!text)
        err_set(err, ENOMEM, "no memory for KUBERNETES_EXEC_INFO");
    return text;
}

/* Runs in the child. May allocate: the parent has only one thread, so no lock is held. */
static void run_child(const struct access *a, const char *info, int out, int err_fd)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    for (char **e = a->exec.env; e && *e; e++)
        putenv(*e);
    setenv("KUBERNETES_EXEC_INFO", info, 1);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(err_fd, 2) == 2)
        execvp(a->exec.argv[0], a->exec.argv);
    const char *why = strerror(errno);
    ssize_t n = write(2, why, strlen(why));
    _exit(n >= 0 ? 127 : 126);
}

static int start_child(struct exec_run *r, const struct access *a, struct err *err)
{
    int out[2], errors[2];
    auto_free char *info = exec_info(a, err);
    if (!info)
        return -ENOMEM;
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(err, errno, "a pipe for credential plugin %s", r->name);
    r->out_fd = out[0];
    auto_close int out_end = out[1];
    if (pipe2(errors, O_CLOEXEC) < 0)
        return err_sys(err, errno, "a pipe for credential plugin %s", r->name);
    r->err_fd = errors[0];
    auto_close int err_end = errors[1];
    fd_set_nonblock(r->out_fd);
    fd_set_nonblock(r->err_fd);
    r->pid = fork();
    if (r->pid < 0)
        return err_sys(err, errno, "fork for credential plugin %s", r->name);
    if (r->pid == 0)
        run_child(a, info, out_end, err_end);
    setpgid(r->pid, r->pid);
    return 0;
}

static int watch_child(struct exec_run *r, struct err *err)
{
    int rc = loop_fd_start(r->loop, &r->out_lfd, r->out_fd, EPOLLIN, on_out, r);
    if (rc == 0)
        rc = loop_fd_start(r->loop, &r->err_lfd, r->err_fd, EPOLLIN, on_err, r);
    if (rc == 0)
        rc = loop_pid_start(r->loop, &r->end, r->pid, on_end, r);
    if (rc < 0)
        return err_sys(err, -rc, "credential plugin %s", r->name);
    loop_timer_start(r->loop, &r->limit, EXEC_MAX_MS, on_limit, r);
    return 0;
}

int exec_start(struct exec_run **ret, struct loop *loop, const struct access *access_to,
               exec_done_f *done, void *arg, struct err *err)
{
    const struct access_exec *e = &access_to->exec;
    struct exec_run *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, ENOMEM, "no memory");
    *r = (struct exec_run){.loop = loop, .out_fd = -1, .err_fd = -1, .done = done, .arg = arg};
    r->name = strdup(e->argv[0]);
    r->api_version = strdup(e->api_version);
    r->hint = e->hint ? strdup(e->hint) : NULL;
    int rc = r->name && r->api_version ? 0 : err_set(err, ENOMEM, "no memory");
    if (rc == 0)
        rc = start_child(r, access_to, err);
    if (rc == 0)
        rc = watch_child(r, err);
    if (rc < 0) {
        exec_cancel(r);
        return rc;
    }
    *ret = r;
    return 0;
}
