/* SPDX-License-Identifier: Apache-2.0
 *
 * reap: see reap.h.
 */
#include "agent/reap.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"

void reap_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Sends signo to each child. Returns the number of children. */
static int signal_children(int signo)
{
    char path[64];
    auto_free char *text = NULL;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    if (fd_read_file(path, 1 << 20, &text, NULL) < 0)
        return 0;
    int n = 0;
    char *end;
    for (char *p = text;; p = end) {
        long pid = strtol(p, &end, 10);
        if (end == p)
            return n;
        if (pid > 1) {
            kill((pid_t)pid, signo);
            n++;
        }
    }
}

int reap_rest(int grace_ms)
{
    uint64_t kill_at = deadline_in_ms((uint64_t)grace_ms);
    uint64_t give_up = deadline_in_ms((uint64_t)grace_ms + 2000);
    int ended = 0;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    int n = signal_children(SIGTERM);
    ended = n;
    while (n > 0 && !deadline_passed(give_up)) {
        usleep(5000);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        n = signal_children(deadline_passed(kill_at) ? SIGKILL : 0);
    }
    return ended;
}

void reap_session(int sid)
{
    DIR *d = sid > 1 ? opendir("/proc") : NULL;
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        int pid = atoi(e->d_name);
        if (pid > 1 && pid != sid && getsid(pid) == sid)
            kill(pid, SIGKILL);
    }
    closedir(d);
}
