/* SPDX-License-Identifier: Apache-2.0
 *
 * ahead: see ahead.h.
 */
#include "agent/ahead.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/fd.h"
#include "core/base/lifeline.h"

#define NICE (-5)

/* Two ways, and neither slows a rank down by more than the turns that are taken. Short turns
 * (lifeline_hurry) need no privilege; Linux 6.12 grants them sooner. A better nice value needs one.
 * Both end at fork (SCHED_RESET_ON_FORK). A nice value that the user has chosen stays. Not chosen:
 * - to make the ranks nicer or SCHED_BATCH: they would lose to all else on the machine;
 * - a real-time policy: it needs the same privilege, and an agent that spins would stop the
 * machine.
 */
void ahead_of_ranks(void)
{
    fd_limit_raise();
    lifeline_hurry();
    errno = 0;
    if (getpriority(PRIO_PROCESS, 0) == 0 && errno == 0)
        (void)setpriority(PRIO_PROCESS, 0, NICE);
}

void ahead_of_group(void)
{
    (void)setsid();
}
