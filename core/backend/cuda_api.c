/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_api: see cuda_api.h.
 */
#include "core/backend/cuda_api.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend/doctor.h"
#include "core/base/library.h"

#define COUNT(a)      (sizeof(a) / sizeof((a)[0]))
#define OLDEST_DRIVER 11000 /* the first driver that has all of CUDA_REQUIRED */

static struct {
    pthread_mutex_t lock;
    bool opened, started;
    struct cuda_api api;
    struct err open_err, start_err; /* code 0: it went well */
} cuda = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what the driver's answers mean ---------------------------------------------------------- */

#define MEANING(name, code, errnum, sticks) {code, errnum, sticks},

static const struct meaning {
    unsigned code;
    int errnum;
    bool sticks;
} meanings[] = {CUDA_ERRORS(MEANING)};

static const struct meaning *meaning_of(unsigned code)
{
    for (size_t i = 0; i < COUNT(meanings); i++)
        if (meanings[i].code == code)
            return &meanings[i];
    return NULL;
}

bool cuda_api_sticks(unsigned code)
{
    const struct meaning *m = meaning_of(code);
    return m && m->sticks;
}

int cuda_api_check(const struct cuda_api *api, unsigned code, const char *call, struct err *err)
{
    const struct meaning *m = meaning_of(code);
    const char *name = NULL, *text = NULL;
    if (code == CUDA_OK)
        return 0;
    if (api->error_name(code, &name) != CUDA_OK || !name)
        name = "an error without a name";
    if (api->error_text(code, &text) != CUDA_OK || !text)
        text = "the driver has no text for it";
    return err_set(err, m ? m->errnum : EIO, "%s: %s (%u): %s", call, name, code, text);
}

/* ---- opening --------------------------------------------------------------------------------- */

#define ROW(field, function, parameters) {#function, (void **)&cuda.api.field},

static int find(struct err *err)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    static const struct library_symbol required[] = {CUDA_REQUIRED(ROW)};
    static const struct library_symbol optional[] = {CUDA_OPTIONAL(ROW)};
    void *handle;
    int rc = library_open(names, required, COUNT(required), &handle, err);
    if (rc == -ENOENT)
        return err_set(err, ENOENT,
                       "there is no NVIDIA driver here (%s): start the container with "
                       "GPUs " DOCTOR(CHECK_NVML_LOAD),
                       err_text(err));
    if (rc < 0)
        return err_set(err, ENOTSUP,
                       "this CUDA driver is too old (%s): install driver 580 or newer on the "
                       "host " DOCTOR(CHECK_DRIVER_VERSION),
                       err_text(err));
    library_find(handle, optional, COUNT(optional));
    if (library_file(handle, cuda.api.path, sizeof(cuda.api.path)) < 0)
        snprintf(cuda.api.path, sizeof(cuda.api.path), "%s", names[0]);
    return 0;
}

static int open_once(struct err *err)
{
    int rc = find(err);
    if (rc < 0)
        return rc;
    rc = cuda_api_check(&cuda.api, cuda.api.driver_version(&cuda.api.version), "cuDriverGetVersion",
                        err);
    if (rc < 0)
        return rc;
    if (cuda.api.version < OLDEST_DRIVER)
        return err_set(err, ENOTSUP,
                       "%s is for CUDA %d.%d at most: install driver 580 or newer on the "
                       "host " DOCTOR(CHECK_DRIVER_VERSION),
                       cuda.api.path, cuda.api.version / 1000, cuda.api.version / 10 % 100);
    return 0;
}

static int answer(const struct err *kept, const struct cuda_api **ret, struct err *err)
{
    if (kept->code == 0)
        *ret = &cuda.api;
    else if (err)
        *err = *kept;
    return kept->code;
}

int cuda_api_open(const struct cuda_api **ret, struct err *err)
{
    pthread_mutex_lock(&cuda.lock);
    if (!cuda.opened)
        open_once(&cuda.open_err);
    cuda.opened = true;
    pthread_mutex_unlock(&cuda.lock);
    return answer(&cuda.open_err, ret, err);
}

/* Converts cuInit's result: 0, or -errno with what the user can do and the doctor's check. */
static int why_not(unsigned code, struct err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int rc = cuda_api_check(&cuda.api, code, "cuInit", err);
    if (rc == 0)
        return 0;
    if (visible && (code == CUDA_NO_DEVICE || code == CUDA_INVALID_DEVICE))
        return err_set(err, ENODEV,
                       "CUDA_VISIBLE_DEVICES=%s leaves no GPU: unset it, or list numbers of GPUs "
                       "that are there " DOCTOR(CHECK_VISIBLE_DEVICES),
                       visible);
    if (code == CUDA_SYSTEM_DRIVER_MISMATCH || code == CUDA_COMPAT_NOT_SUPPORTED_ON_DEVICE)
        return err_set(err, -rc,
                       "%s does not fit the driver of the host: %s " DOCTOR(CHECK_DRIVER_VERSION),
                       cuda.api.path, err_text(err));
    return err_set(err, -rc, "%s " DOCTOR(CHECK_CUINIT), err_text(err));
}

int cuda_api_start(const struct cuda_api **ret, struct err *err)
{
    const struct cuda_api *api;
    int rc = cuda_api_open(&api, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&cuda.lock);
    if (!cuda.started)
        why_not(cuda.api.init(0), &cuda.start_err);
    cuda.started = true;
    pthread_mutex_unlock(&cuda.lock);
    return answer(&cuda.start_err, ret, err);
}
