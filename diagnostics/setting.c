/* SPDX-License-Identifier: Apache-2.0
 *
 * setting: see setting.h.
 */
#include "diagnostics/setting.h"

#include <stdlib.h>
#include <string.h>

#include "diagnostics/machine.h"

#define TIMEOUT_MS 10000

/* The value of the first variable that holds a number in [1, 2^20]; 0: none does. */
static int first_number(const struct machine *m, const char *const *names)
{
    for (; *names; names++) {
        const char *value = machine_env(m, *names);
        char *end;
        long n = value ? strtol(value, &end, 10) : 0;
        if (value && end != value && *end == '\0' && n >= 1 && n <= 1 << 20)
            return (int)n;
    }
    return 0;
}

static unsigned guess_profiles(const struct machine *m)
{
    unsigned profiles = 0;
    if (machine_exists(m, "dev/nvidiactl") || machine_exists(m, "proc/driver/nvidia/version"))
        profiles |= PROFILE_GPU;
    else
        profiles |= PROFILE_CPU;
    if (machine_env(m, "KUBERNETES_SERVICE_HOST"))
        profiles |= PROFILE_K8S;
    return profiles;
}

void setting_guess(struct setting *s, const struct machine *m)
{
    static const char *const sizes[] = {"HVD_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE",
                                        "SLURM_NTASKS", NULL};
    static const char *const locals[] = {"HVD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", NULL};
    memset(s, 0, sizeof(*s));
    s->profiles = guess_profiles(m);
    s->ranks = first_number(m, sizes);
    s->local_ranks = first_number(m, locals);
    if (s->local_ranks == 0)
        s->local_ranks = 1;
    s->gpus = -1;
    s->level = 1;
    s->timeout_ms = TIMEOUT_MS;
    s->interfaces = machine_env(m, "HVD_IFACE");
}
