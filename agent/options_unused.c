/* SPDX-License-Identifier: Apache-2.0
 *
 * options_unused: options of horovodrun that change nothing here. They are accepted, so that
 * commands written for it run as they are. See options_private.h.
 */
#include <stdio.h>

#include "agent/options_private.h"
#include "core/base/names.h"

static const char by_host[] =
    "on CPUs hvd always works inside each host first; on GPUs NCCL chooses";
static const char tuning[] = "hvd does not tune itself";
static const char times[] = "hvd's log has no times";

static const struct unused_option options[] = {
    {"--gloo|--mpi|--disable-cache", false, NULL},
    {"--jsrun", false, "hvdrun starts the ranks itself"},
    {"--mpi-args", true, "no mpirun is called"},
    {"--binding-args", true, "see --bind-to"},
    {"--mpi-threads-disable|--no-mpi-threads-disable", false, NULL},
    {"--num-nccl-streams|--thread-affinity|--gloo-timeout-seconds", true, NULL},
    {"--hierarchical-allreduce|--hierarchical-allgather|--torus-allreduce", false, by_host},
    {"--no-hierarchical-allreduce|--no-hierarchical-allgather|--no-torus-allreduce", false, NULL},
    {"--autotune", false, tuning},
    {"--no-autotune", false, NULL},
    {"--autotune-log-file|--autotune-warmup-samples|--autotune-steps-per-sample|"
     "--autotune-bayes-opt-max-samples|--autotune-gaussian-process-noise",
     true, NULL},
    {"--log-with-timestamp|--no-log-hide-timestamp", false, times},
    {"--log-without-timestamp|--log-hide-timestamp|--no-log-with-timestamp", false, NULL},
};

const struct unused_option *options_unused(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
        if (names_have(options[i].names, word, n))
            return &options[i];
    return NULL;
}

void options_unused_say(const struct unused_option *option, const char *word, size_t n)
{
    if (option->why)
        fprintf(stderr, "hvdrun: %.*s changes nothing: %s\n", (int)n, word, option->why);
}
