/* SPDX-License-Identifier: Apache-2.0
 *
 * ask: see ask.h.
 */
#include "diagnostics/prober/ask.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "diagnostics/prober/out.h"

static void child(const char *name, ask_f *ask)
{
    char real[PATH_MAX];
    struct link_map *map = NULL;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        out_put("error", "%s", dlerror());
        _exit(0);
    }
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
        out_put("loaded", "%s", realpath(map->l_name, real) ? real : map->l_name);
    if (ask)
        ask(handle);
    _exit(0); /* skips the destructors of the library: they could hang or crash */
}

static void start_child(const char *name, ask_f *ask, int out)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (null >= 0) { /* output of the library itself must not mix with the answer */
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
    }
    out_to(out);
    child(name, ask);
}

static void add_line(struct ask *a, const char *line)
{
    size_t n = strlen(line);
    if (a->len + n >= sizeof(a->text))
        a->len = sizeof(a->text) - 1 - n;
    memcpy(a->text + a->len, line, n + 1);
    a->len += n;
}

/* Removes an incomplete last line. */
static void cut(struct ask *a)
{
    while (a->len && a->text[a->len - 1] != '\n')
        a->len--;
    a->text[a->len] = '\0';
}

void ask_library(struct ask *ret, const char *name, ask_f *ask, int ms)
{
    int ends[2], status = 0;
    char line[64];
    uint64_t deadline = deadline_in_ms((uint64_t)ms);
    ret->len = 0;
    ret->text[0] = '\0';
    pid_t pid = pipe2(ends, O_CLOEXEC) < 0 ? -1 : fork();
    if (pid < 0) {
        snprintf(line, sizeof(line), "error no child: %s\n", strerror(errno));
        add_line(ret, line);
        return;
    }
    if (pid == 0) {
        close(ends[0]);
        start_child(name, ask, ends[1]);
    }
    close(ends[1]);
    int rc = 0;
    while (ret->len < sizeof(ret->text) - 1 && rc == 0) {
        rc = fd_read_full(ends[0], ret->text + ret->len, 1, deadline);
        ret->len += rc == 0;
    }
    cut(ret);
    close(ends[0]);
    if (rc == -ETIMEDOUT)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (rc == -ETIMEDOUT) {
        add_line(ret, "state timeout\n");
    } else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGPIPE) {
        snprintf(line, sizeof(line), "state crashed %s\n", strsignal(WTERMSIG(status)));
        add_line(ret, line);
    }
}

int ask_value(const struct ask *a, const char *key, char *dst, size_t size)
{
    size_t n = strlen(key);
    for (const char *s = a->text; *s;) {
        size_t len = strcspn(s, "\n");
        if (strncmp(s, key, n) == 0 && s[n] == ' ') {
            snprintf(dst, size, "%.*s", (int)(len - n - 1), s + n + 1);
            return 1;
        }
        s += len + (s[len] == '\n');
    }
    return 0;
}

void ask_print(const struct ask *a, const char *list, int i)
{
    char line[8192];
    for (const char *s = a->text; *s;) {
        size_t len = strcspn(s, "\n");
        int n = snprintf(line, sizeof(line), "%s.%d.%.*s\n", list, i, (int)len, s);
        if (n > 0 && (size_t)n < sizeof(line))
            fd_write_full(1, line, (size_t)n, UINT64_MAX);
        s += len + (s[len] == '\n');
    }
}
