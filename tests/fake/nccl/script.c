/* SPDX-License-Identifier: Apache-2.0
 *
 * script: the failures that FAKE_NCCL_FAIL and FAKE_NCCL_HANG request (tests/fake/README.md). See
 * fake.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/nccl/fake.h"

#ifndef FAKE_NCCL_CUDA
#define FAKE_NCCL_CUDA "13.0"
#endif

/* The text of the real library, the only place that names the CUDA version it was built for
 * (core/backend/nccl_api.h). */
EXPORT extern const char fake_nccl_text[];
const char fake_nccl_text[] = "NCCL version 0.0.0+cuda" FAKE_NCCL_CUDA;

#define FUNCTIONS_MAX 40

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Calls of each function, by the address of its __func__. A new script counts from 0. */
static struct {
    char fail[256], hang[256];
    struct {
        const char *name;
        int calls;
    } of[FUNCTIONS_MAX];
} counted;

int script_number(const char *variable, int def)
{
    const char *text = getenv(variable);
    return text && *text ? (int)strtol(text, NULL, 0) : def;
}

/* Counts a call of the function, and returns its number, from 1. fail, hang: the script. */
static int count(const char *function, const char *fail, const char *hang)
{
    const size_t most = sizeof(counted.fail) - 1;
    if (strncmp(fail, counted.fail, most) != 0 || strncmp(hang, counted.hang, most) != 0) {
        memset(&counted, 0, sizeof(counted));
        snprintf(counted.fail, sizeof(counted.fail), "%s", fail);
        snprintf(counted.hang, sizeof(counted.hang), "%s", hang);
    }
    for (int i = 0; i < FUNCTIONS_MAX; i++) {
        if (!counted.of[i].name)
            counted.of[i].name = function;
        if (counted.of[i].name == function)
            return ++counted.of[i].calls;
    }
    return 0;
}

/* Format of FAKE_NCCL_FAIL and FAKE_NCCL_HANG: FUNCTION[:N[:sync|async[:RESULT]]], entries
 * separated by commas. An entry applies to the Nth call of FUNCTION. Defaults: 1, sync,
 * ncclSystemError. */
static bool named(const char *script, const char *function, int call, bool *ret_async,
                  int *ret_result)
{
    for (const char *s = script; *s; s += strcspn(s, ","), s += *s == ',') {
        char entry[128], name[48] = "", how[16] = "sync";
        int nth = 1, result = NCCL_ABI_SYSTEM_ERROR;
        snprintf(entry, sizeof(entry), "%.*s", (int)strcspn(s, ","), s);
        if (sscanf(entry, "%47[^:]:%d:%15[^:]:%d", name, &nth, how, &result) < 1)
            continue;
        if (strcmp(name, function) != 0 || nth != call)
            continue;
        *ret_async = strcmp(how, "async") == 0;
        *ret_result = result;
        return true;
    }
    return false;
}

struct fault script_fault(const char *function, struct ncclComm *comm)
{
    struct fault f = {0};
    bool async = false;
    int result = 0;
    const char *fail = getenv("FAKE_NCCL_FAIL"), *hang = getenv("FAKE_NCCL_HANG");
    fail = fail ? fail : "";
    hang = hang ? hang : "";
    pthread_mutex_lock(&lock);
    int call = count(function, fail, hang);
    pthread_mutex_unlock(&lock);
    if (named(fail, function, call, &async, &result)) {
        f.sync = async ? 0 : result;
        f.async = async ? result : 0;
    }
    if (named(hang, function, call, &async, &result)) {
        f.hangs = async;
        if (!async && comm) {
            comm_hang(comm);
            f.sync = NCCL_ABI_INTERNAL_ERROR;
        }
        while (!async && !comm)
            pause();
    }
    return f;
}
