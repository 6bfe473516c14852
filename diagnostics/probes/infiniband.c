/* SPDX-License-Identifier: Apache-2.0
 *
 * infiniband: can this process open the device files of the RDMA devices?
 *
 * Runs in a child of its own: opening a device may hang in a broken driver. No command is sent to a
 * device. Answer "infiniband": uverbs.<i>.{name errno}. "ibverbs" is hvd-probe's: it loads the
 * image's libibverbs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "diagnostics/probe.h"

static int run_infiniband(struct buf *out, const struct machine *m, const struct setting *s)
{
    auto_free char **names = NULL;
    int n = 0;
    int rc = machine_list(m, "dev/infiniband", &names, NULL);
    if (rc == -ENOENT)
        return 0;
    for (size_t i = 0; rc == 0 && names[i]; i++) {
        char path[300];
        if (strncmp(names[i], "uverbs", 6) != 0)
            continue;
        snprintf(path, sizeof(path), "dev/infiniband/%s", names[i]);
        auto_close int fd = openat(m->root, path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        answer_put_at(out, "uverbs", n, "name", "%s", names[i]);
        answer_put_at(out, "uverbs", n, "errno", "%d", fd < 0 ? errno : 0);
        n++;
    }
    return rc;
}

static const struct probe probes[] = {{.name = "infiniband", .level = 1, .run = run_infiniband}};

const struct probe_table probes_infiniband = {probes, sizeof(probes) / sizeof(probes[0])};
