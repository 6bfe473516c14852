/* SPDX-License-Identifier: Apache-2.0
 *
 * kube_server: see kube_server.h.
 */
#include "tests/harness/kube_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    pid_t pid;
    FILE *to, *from;
    char line[512];
} server;

static void die(const char *what)
{
    fprintf(stderr, "kube_server: %s: %s\n", what, strerror(errno));
    abort();
}

static const char *answer(const char *want)
{
    if (!fgets(server.line, sizeof(server.line), server.from))
        die("no answer");
    server.line[strcspn(server.line, "\n")] = '\0';
    if (strncmp(server.line, want, strlen(want)) != 0)
        die(server.line);
    return server.line + strlen(want);
}

int kube_server_start(const char *cert, const char *key)
{
    int in[2], out[2];
    const char *py = getenv("PY") ? getenv("PY") : "/usr/bin/python3";
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        die("pipe");
    server.pid = fork();
    if (server.pid < 0)
        die("fork");
    if (server.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        unsetenv("LD_PRELOAD");
        execl(py, py, "tests/fake/kube_api.py", cert, key, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    server.to = fdopen(in[1], "w");
    server.from = fdopen(out[0], "r");
    if (!server.to || !server.from)
        die("fdopen");
    return atoi(answer("port "));
}

const char *kube_server_do(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(server.to, fmt, ap);
    va_end(ap);
    fputc('\n', server.to);
    fflush(server.to);
    return answer("ok ");
}

long kube_server_count(const char *name)
{
    const char *text = kube_server_do("count"), *at = strstr(text, name);
    if (!at || at[strlen(name)] != '=')
        die("no such count");
    return strtol(at + strlen(name) + 1, NULL, 10);
}

void kube_server_stop(void)
{
    if (server.pid <= 0)
        return;
    fclose(server.to);
    fclose(server.from);
    kill(server.pid, SIGKILL); /* a test may have made it hang */
    waitpid(server.pid, NULL, 0);
    server.pid = 0;
}
