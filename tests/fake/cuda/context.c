/* SPDX-License-Identifier: Apache-2.0
 *
 * context: the entry of every call; primary contexts, each thread's stack of them, the mode of
 * capture; and control.h.
 */
#include "tests/fake/cuda/fake.h"

#define FUNCTIONS 64
#define STACK     16

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_moved = PTHREAD_COND_INITIALIZER;
struct CUctx_st fake_contexts[FAKE_GPUS];
unsigned fake_delay_us;
bool fake_stalled;
long fake_live;
size_t fake_locked;

/* Calls of each function. A function is found by the address of its name, its own __func__. */
static struct {
    const char *name;
    long calls;
} functions[FUNCTIONS];
static long calls, fail_at = -1;
static unsigned fail_code;
static bool started;
static struct CUstream_st *captured;

static __thread struct CUctx_st *stack[STACK];
static __thread int depth;
static __thread unsigned capture_mode = CUDA_CAPTURE_GLOBAL;

static void count(const char *name)
{
    int i = 0;
    calls++;
    while (i < FUNCTIONS - 1 && functions[i].name && functions[i].name != name)
        i++;
    functions[i].name = name;
    functions[i].calls++;
}

/* Functions that release something never fail on demand, because their callers cannot report it. */
static bool releases(const char *function)
{
    return strstr(function, "Destroy") || strstr(function, "Free") || strstr(function, "Release") ||
           strstr(function, "Unload");
}

/* Returns whether this call repeats the query before it. Callers repeat a query until a stream is
 * done, some times more and some times less: fail_at does not count the repeats. */
static bool repeats_query(const char *function)
{
    static const char *last = "";
    bool again = strcmp(function, last) == 0 && strstr(function, "Query");
    last = function;
    return again;
}

/* Called with the lock. */
static unsigned answer(const char *function, enum fake_needs needs)
{
    count(function);
    if (fail_at >= 0 && !releases(function) && !repeats_query(function) && fail_at-- == 0)
        return fail_code;
    if (!started && strcmp(function, "cuInit") == 0)
        started = true;
    if (needs == FAKE_NOTHING)
        return CUDA_OK;
    if (!started)
        return CUDA_NOT_INITIALIZED;
    if (needs == FAKE_INIT)
        return CUDA_OK;
    struct CUctx_st *c = fake_current();
    if (!c || c->retained == 0)
        return CUDA_INVALID_CONTEXT;
    if (c->sticky)
        return c->sticky;
    if (needs == FAKE_UNSAFE && captured && capture_mode != CUDA_CAPTURE_RELAXED) {
        captured->capturing = 2; /* invalidated */
        return CUDA_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_OK;
}

unsigned fake_enter(const char *function, enum fake_needs needs)
{
    /* The script comes first: it may hang, and must not do so with the lock. */
    unsigned code = (unsigned)script_enter(SCRIPT, function, 0);
    pthread_mutex_lock(&fake_lock);
    unsigned ours = answer(function, needs);
    pthread_mutex_unlock(&fake_lock);
    return code ? code : ours;
}

struct CUctx_st *fake_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **ret, int device)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    if (code)
        return code;
    if (device < 0 || device >= FAKE_GPUS)
        return CUDA_INVALID_DEVICE;
    pthread_mutex_lock(&fake_lock);
    fake_contexts[device].device = device;
    fake_contexts[device].retained++;
    fake_live++;
    pthread_mutex_unlock(&fake_lock);
    *ret = &fake_contexts[device];
    return CUDA_OK;
}

unsigned cuDevicePrimaryCtxRelease_v2(int device)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    if (code)
        return code;
    pthread_mutex_lock(&fake_lock);
    if (fake_contexts[device].retained == 0)
        code = CUDA_INVALID_CONTEXT;
    fake_contexts[device].retained -= code == CUDA_OK;
    fake_live -= code == CUDA_OK;
    pthread_mutex_unlock(&fake_lock);
    return code;
}

unsigned cuCtxPushCurrent_v2(struct CUctx_st *context)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    if (code || depth == STACK)
        return code ? code : CUDA_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_OK;
}

unsigned cuCtxSetCurrent(struct CUctx_st *context)
{
    unsigned code = fake_enter(__func__, FAKE_INIT);
    if (code)
        return code;
    depth += depth == 0;
    stack[depth - 1] = context;
    return CUDA_OK;
}

/* Never fails on demand, so that a caller can always leave its context. */
unsigned cuCtxPopCurrent_v2(struct CUctx_st **ret)
{
    if (depth == 0)
        return CUDA_INVALID_CONTEXT;
    *ret = stack[--depth];
    return CUDA_OK;
}

unsigned cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    /* Going back to the previous mode never fails on demand. */
    unsigned code = *mode == CUDA_CAPTURE_RELAXED ? fake_enter(__func__, FAKE_INIT) : CUDA_OK;
    unsigned old = capture_mode;
    if (code)
        return code;
    capture_mode = *mode;
    *mode = old;
    return CUDA_OK;
}

unsigned cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    *ret_least = 0;
    *ret_greatest = -5;
    return fake_enter(__func__, FAKE_CONTEXT);
}

/* ---- control.h ------------------------------------------------------------------------------- */

static long control_calls(const char *function)
{
    long n = 0;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < FUNCTIONS; i++)
        if (function && functions[i].name && strcmp(functions[i].name, function) == 0)
            n = functions[i].calls;
    n = function ? n : calls;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static void control_fail(long n, unsigned code)
{
    pthread_mutex_lock(&fake_lock);
    fail_at = n;
    fail_code = code;
    pthread_mutex_unlock(&fake_lock);
}

static bool control_failed(void)
{
    pthread_mutex_lock(&fake_lock);
    bool failed = fail_at < 0;
    pthread_mutex_unlock(&fake_lock);
    return failed;
}

static void control_break(int device, unsigned code)
{
    pthread_mutex_lock(&fake_lock);
    fake_contexts[device].breaks = code;
    pthread_mutex_unlock(&fake_lock);
}

static void control_mend(int device)
{
    pthread_mutex_lock(&fake_lock);
    fake_contexts[device].breaks = fake_contexts[device].sticky = 0;
    pthread_mutex_unlock(&fake_lock);
}

static void control_stall(bool on)
{
    pthread_mutex_lock(&fake_lock);
    fake_stalled = on;
    pthread_cond_broadcast(&fake_moved);
    pthread_mutex_unlock(&fake_lock);
}

static void control_delay(unsigned us)
{
    pthread_mutex_lock(&fake_lock);
    fake_delay_us = us;
    pthread_mutex_unlock(&fake_lock);
}

static void control_capture(struct CUstream_st *stream, unsigned status)
{
    pthread_mutex_lock(&fake_lock);
    stream->capturing = status;
    captured = status ? stream : NULL;
    pthread_mutex_unlock(&fake_lock);
}

static long control_live(void)
{
    pthread_mutex_lock(&fake_lock);
    long n = fake_live;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static size_t control_locked(void)
{
    pthread_mutex_lock(&fake_lock);
    size_t n = fake_locked;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

const struct fake_cuda_control fake_cuda_control = {
    .calls = control_calls,
    .fail_call = control_fail,
    .failed = control_failed,
    .break_device = control_break,
    .mend = control_mend,
    .stall = control_stall,
    .delay = control_delay,
    .capture = control_capture,
    .live = control_live,
    .locked = control_locked,
    .log = fake_log,
    .work = fake_work,
};
