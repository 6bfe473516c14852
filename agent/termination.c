/* SPDX-License-Identifier: Apache-2.0
 *
 * termination: see termination.h.
 */
#include "agent/termination.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/log.h"

char *termination_path(void)
{
    const char *path = getenv(TERMINATION_VARIABLE);
    return strdup(path && *path ? path : TERMINATION_PATH);
}

void termination_write(const char *path, enum agent_end end, const char *text)
{
    char message[1024];
    agent_end_write(end, text, message, sizeof(message));
    /* A program may have put something else there, such as a FIFO: never wait for a reader. */
    auto_close int fd = open(path, O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return;
    if (fd < 0 || write(fd, message, strlen(message)) < 0)
        log_warn("the operator cannot be told why this agent ends: %s: %s", path, strerror(errno));
}
