/* SPDX-License-Identifier: Apache-2.0
 *
 * known: see known.h. The list is alphabetical; tests/e2e/test_hvdrun_input.sh compares it with the
 * sources.
 */
#include "core/base/known.h"

#include <stdio.h>
#include <string.h>

#include "core/base/nearest.h"

#define PREFIX     "HVD_"
#define PREFIX_LEN (sizeof(PREFIX) - 1)
#define NAME_BYTES 64

static const char *const names[] = {
    "AGENT_FD",
    "BACKEND",
    "BIND",
    "BUNDLE_IMAGE",
    "BUNDLE_MOUNT",
    "CACHE_CAPACITY",
    "COORDINATOR_LOST_SECONDS",
    "CORE_DUMPS",
    "CROSS_RANK",
    "CROSS_SIZE",
    "CYCLE_TIME",
    "DOCTOR",
    "DOCTOR_LEVEL",
    "DRAIN_SECONDS",
    "ELASTIC",
    "ELASTIC_INTERRUPT",
    "ELASTIC_RESET_LIMIT",
    "ELASTIC_TIMEOUT",
    "FREEZE_AFTER",
    "FUSION_THRESHOLD",
    "GPU_FALLBACK",
    "HEARTBEAT_MS",
    "HIERARCHICAL_ADASUM",
    "HOROVOD",
    "IFACE",
    "INSECURE",
    "JOB",
    "JOB_NAME",
    "JOB_NAMESPACE",
    "JOB_UID",
    "JOIN_ALL",
    "KERNELS",
    "KEY_FILE",
    "LIBRARY",
    "LOCALITY",
    "LOCAL_RANK",
    "LOCAL_SIZE",
    "LOG_LEVEL",
    "METRICS",
    "MPI_FINALIZE_TIMEOUT",
    "MPI_FLAT",
    "MPI_PLUGIN",
    "NCCL_LIB",
    "NCCL_MESSAGE_THRESHOLD",
    "OPERATOR",
    "OPERATOR_CA",
    "OUTPUT_BUFFER",
    "PAGE",
    "PEER_TIMEOUT_SECONDS",
    "POD_NAME",
    "POD_UID",
    "RANK",
    "REJOIN_JITTER_MS",
    "RENDEZVOUS",
    "RSH_AGENT",
    "RUN_AT",
    "RUN_DIR",
    "RUN_KEY",
    "SHM",
    "SIMD",
    "SIZE",
    "STALL_CHECK_DISABLE",
    "STALL_CHECK_TIME_SECONDS",
    "STALL_SHUTDOWN_TIME_SECONDS",
    "START_TIMEOUT",
    "TERMINATION_MESSAGE_PATH",
    "TIMELINE",
    "TIMELINE_MARK_CYCLES",
    "TOKEN_FILE",
    "WATCH_NAMESPACE",
};

bool known_misspelt(const char *variable, char *dst, size_t size)
{
    struct nearest near;
    char name[NAME_BYTES];
    size_t n = strcspn(variable, "=");
    if (strncmp(variable, PREFIX, PREFIX_LEN) != 0 || n - PREFIX_LEN >= sizeof(name))
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)(n - PREFIX_LEN), variable + PREFIX_LEN);
    if (strncmp(name, "TEST_", 5) == 0) /* settings of hvd's own tests */
        return false;
    nearest_init(&near, name);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0)
            return false;
        nearest_try(&near, names[i]);
    }
    const char *best = nearest_best(&near);
    if (!best)
        return false;
    snprintf(dst, size, PREFIX "%s is no setting and changes nothing: is " PREFIX "%s meant?", name,
             best);
    return true;
}

bool known_simd(const char *value)
{
    static const char *const values[] = {"scalar", "avx2", "avx512", "neon"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (strcmp(values[i], value) == 0)
            return true;
    return false;
}
