/* SPDX-License-Identifier: Apache-2.0
 *
 * time: operations that take time, on streams of a fake libcuda that has time (FAKE_CUDA_TIME): a
 * collective starts on all ranks when the last rank's stream is ready, and ends after a latency
 * and its bytes at a bandwidth (FAKE_NCCL_TIME). The ranks tell each other in a meeting when they
 * are ready, as soon as they know, which may be ahead of the clock. See fake.h.
 */
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake/cuda/control.h"
#include "tests/fake/nccl/fake.h"

static struct {
    bool on;
    double bw, latency, call, async;
} config;

static void set(const char *key, double value)
{
    const struct {
        const char *key;
        double *to;
    } numbers[] = {{"bw", &config.bw},
                   {"latency", &config.latency},
                   {"call", &config.call},
                   {"async", &config.async}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            *numbers[i].to = value;
            return;
        }
    }
    fake_wrong("FAKE_NCCL_TIME has a key that does not exist");
}

static void read_config(void)
{
    const char *text = getenv("FAKE_NCCL_TIME");
    config.on = text != NULL;
    for (const char *s = text ? text : ""; *s; s += strcspn(s, ","), s += *s == ',') {
        char key[16] = "", value[32] = "";
        if (sscanf(s, "%15[^=,]=%31[^,]", key, value) == 2)
            set(key, strtod(value, NULL));
    }
}

static void need_config(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_config);
}

static uint64_t now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- the host's part ---- */

bool time_call(struct ncclComm *comm)
{
    need_config();
    if (!config.on)
        return false;
    uint64_t until = now() + (uint64_t)(config.call * 1e9);
    while (now() < until)
        ;
    comm->launch_at = now() + (uint64_t)(config.async * 1e9);
    return config.async <= 0;
}

void time_delay(struct ncclComm *comm, int ms)
{
    if (!config.on)
        comm->launch_at = now() + (uint64_t)ms * 1000000;
}

bool time_is_due(struct ncclComm *comm)
{
    need_config();
    if (now() < comm->launch_at)
        return false;
    return config.on || --comm->polls <= 0;
}

/* ---- the device's part ---- */

static bool is_letter(const struct task *t)
{
    return t->kind == SEND || t->kind == RECV;
}

static bool has_letters(const struct task *list)
{
    while (list && !is_letter(list))
        list = list->next;
    return list != NULL;
}

static double bytes_of(const struct task *t)
{
    return (double)t->count * (double)type_size(t->type);
}

/* Bytes that this rank sends; what it receives at the same time does not count, except the larger
 * part of messages. */
static double sent_of(const struct task *list)
{
    double n = list->comm->size, sum = 0, sends = 0, receives = 0;
    for (const struct task *t = list; t; t = t->next) {
        double bytes = bytes_of(t);
        if (t->kind == SEND)
            sends += bytes;
        else if (t->kind == RECV)
            receives += bytes;
        else if (t->kind == ALL_REDUCE)
            sum += 2 * (n - 1) / n * bytes;
        else if (t->kind == ALL_GATHER || t->kind == REDUCE_SCATTER)
            sum += (n - 1) * bytes;
        else
            sum += n > 1 ? bytes : 0;
    }
    return sum + (sends > receives ? sends : receives);
}

static uint64_t takes(const struct task *list)
{
    double seconds = config.latency + (config.bw > 0 ? sent_of(list) / config.bw : 0);
    return (uint64_t)(seconds * 1e9 + 0.5);
}

/* Comes to the next meeting, once. True: all ranks have come; *ret_start is the latest. */
static bool meet(struct task *list, uint64_t ready, uint64_t *ret_start, const void **ret_word,
                 uint32_t *ret_value)
{
    struct ncclComm *c = list->comm;
    struct meeting *m = &c->segment->meeting[c->met % MEETINGS];
    uint32_t all = (uint32_t)(c->met / MEETINGS + 1) * (uint32_t)c->size;
    if (!list->came) {
        list->came = true;
        atomic_store(&m->ready[c->rank], ready);
        if (atomic_fetch_add(&m->came, 1) + 1 == all)
            syscall(SYS_futex, &m->came, FUTEX_WAKE, RANKS_MAX, NULL, NULL, 0);
    }
    *ret_word = &m->came;
    *ret_value = atomic_load(&m->came);
    if (*ret_value != all)
        return false;
    for (int r = 0; r < c->size; r++) {
        uint64_t at = atomic_load(&m->ready[r]);
        *ret_start = at > *ret_start ? at : *ret_start;
    }
    c->met++;
    return true;
}

/* Returns whether the list never ends by itself. */
static bool is_stuck(const struct task *list)
{
    for (const struct task *t = list; t; t = t->next) {
        if (t->fails)
            atomic_store(&t->comm->async, t->fails);
        if (t->fails || t->hangs)
            return true;
    }
    return false;
}

static bool is_given_up(const struct ncclComm *c)
{
    return atomic_load(&c->aborted);
}

static bool when(void *arg, uint64_t ready, uint64_t *ret_start, uint64_t *ret_end,
                 const void **ret_word, uint32_t *ret_value)
{
    struct task *list = arg;
    struct ncclComm *c = list->comm;
    *ret_start = ready;
    *ret_end = ready > now() ? ready : now();
    *ret_word = NULL;
    if (is_given_up(c))
        return true;
    if (atomic_load(&c->run) != list->number || is_stuck(list))
        return false;
    if (!has_letters(list) && !meet(list, ready, ret_start, ret_word, ret_value))
        return false;
    *ret_end = *ret_start + takes(list);
    return true;
}

static void run(void *list)
{
    if (!is_given_up(((struct task *)list)->comm))
        run_in_turn(list);
}

static void done(void *list)
{
    leave_list(list);
}

bool time_enqueue(struct task *list, int *ret_result)
{
    struct fake_cuda_timed timed = {.issued = list->comm->blocking ? 0 : list->comm->launch_at,
                                    .real = has_letters(list),
                                    .when = when,
                                    .run = run,
                                    .done = done};
    void *symbol = stream_symbol("fake_cuda_enqueue_timed");
    int (*enqueue)(void *stream, const struct fake_cuda_timed *timed, void *ctx);
    memcpy(&enqueue, &symbol, sizeof(enqueue));
    for (const struct task *t = list; t; t = t->next)
        timed.bytes += t->count * type_size(t->type);
    int rc = enqueue ? enqueue(list->stream, &timed, list) : 1;
    *ret_result = rc == 0 ? NCCL_ABI_SUCCESS : NCCL_ABI_CUDA_ERROR;
    return rc != 1;
}
