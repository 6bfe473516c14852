/* SPDX-License-Identifier: Apache-2.0
 *
 * priority: see priority.h.
 */
#include "agent/priority.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/fd.h"
#include "core/base/lifeline.h"

#define NICE (-5)

/* Two settings, both reset at fork (SCHED_RESET_ON_FORK), that hardly slow down ranks. Short time
 * slices (lifeline_raise_priority) need no privilege, and Linux 6.12 schedules such a thread
 * sooner. A better nice value needs privilege; a value that the user has chosen stays. Alternatives
 * that were rejected: making ranks nicer or SCHED_BATCH, because they would lose to everything else
 * on the machine; and a real-time policy, which needs the same privilege and lets an agent that
 * spins stop the machine. */
void priority_raise(void)
{
    fd_limit_raise();
    lifeline_raise_priority();
    errno = 0;
    if (getpriority(PRIO_PROCESS, 0) == 0 && errno == 0)
        (void)setpriority(PRIO_PROCESS, 0, NICE);
}

void priority_new_session(void)
{
    (void)setsid();
}
