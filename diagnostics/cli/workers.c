/* SPDX-License-Identifier: Apache-2.0
 *
 * workers: hvd-doctor workers: checks that need several machines. A launcher (hvdrun --doctor)
 * starts one process on each machine; worker 0 reports the common findings.
 */
#include <stdio.h>
#include <unistd.h>

#include "core/include/hvd.h"
#include "diagnostics/cli/report.h"
#include "diagnostics/workers/workers.h"

/* Shows progress while a person waits for it. */
static void say(void *arg, const char *text)
{
    const struct cli *cli = arg;
    if (!cli->quiet)
        fprintf(stderr, "hvd-doctor: %s\n", text);
}

static int measure_and_report(const struct cli *cli, struct session *s, struct err *err)
{
    static const char *const group[] = {"workers"};
    s->setting.ranks = hvd_size();
    if (s->choice.nonly == 0) {
        s->choice.only = group;
        s->choice.nonly = 1;
    }
    int rc = workers_measure(&s->machine, &s->setting, say, (void *)cli, err);
    if (rc < 0 || hvd_rank() != 0)
        return rc < 0 ? rc : CLI_GOOD;
    return report_whole(cli, s, err);
}

int cli_workers(const struct cli *cli, struct err *err)
{
    struct session s;
    int rc = session_open(&s, cli, err);
    s.setting.level = 3;
    if (rc == 0)
        rc = doctor_may_load(&s.machine, &s.setting, err);
    if (rc == 0 && hvd_init() < 0)
        rc = err_set(err, EIO, "%s", hvd_error());
    if (rc == 0) {
        rc = measure_and_report(cli, &s, err);
        hvd_shutdown();
    }
    session_close(&s);
    return rc;
}
