/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_text: what a roster has to say to people: ends of ranks, lists of ranks. See roster.h.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/member/roster.h"

void roster_end_text(int rank, const char *host, int pid, int code, bool early, const char *text,
                     char *dst, size_t size)
{
    if (text[0]) {
        snprintf(dst, size, "rank %d on %s: %s", rank, host, text);
    } else if (code < 0) {
        const char *name = sigabbrev_np(-code);
        snprintf(dst, size, "rank %d on %s (pid %d) was ended by signal %d (SIG%s)", rank, host,
                 pid, -code, name ? name : "?");
    } else if (early) {
        snprintf(dst, size, "rank %d on %s (pid %d) left early: it exited without hvd_shutdown()",
                 rank, host, pid);
    } else {
        snprintf(dst, size, "rank %d on %s (pid %d) exited with code %d", rank, host, pid, code);
    }
}

void roster_describe_end(const struct roster *r, int rank, char *dst, size_t size)
{
    const struct roster_rank *mine = &r->ranks[rank];
    roster_end_text(rank, r->agents[mine->agent].host, mine->pid, mine->code, mine->early,
                    mine->text, dst, size);
}

/* Appends; what does not fit is cut. */
static void append(char *dst, size_t size, const char *text)
{
    size_t len = strlen(dst);
    snprintf(dst + len, size - len, "%s", text);
}

/* Runs of ranks [from, to] as "3" or "3-5". */
static void append_run(char *dst, size_t size, int from, int to)
{
    char run[32];
    if (from == to)
        snprintf(run, sizeof(run), "%s%d", dst[0] ? ", " : "", from);
    else
        snprintf(run, sizeof(run), "%s%d-%d", dst[0] ? ", " : "", from, to);
    append(dst, size, run);
}

void roster_list(const struct roster *r, enum rank_state state, char *dst, size_t size)
{
    dst[0] = '\0';
    for (int a = 0; a < r->nagents; a++) {
        int from = -1, end = r->agents[a].first + r->agents[a].nranks;
        bool any = false;
        for (int i = r->agents[a].first; i <= end; i++) {
            bool in = i < end && r->ranks[i].state == state;
            if (in && from < 0)
                from = i;
            if (!in && from >= 0) {
                append_run(dst, size, from, i - 1);
                from = -1;
                any = true;
            }
        }
        if (any) {
            append(dst, size, " (");
            append(dst, size, r->agents[a].host);
            append(dst, size, ")");
        }
    }
    if (!dst[0])
        append(dst, size, "none");
}
