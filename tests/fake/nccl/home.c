/* SPDX-License-Identifier: Apache-2.0
 *
 * home: NCCL before 2.27 keeps what a group of a nonblocking communicator has begun in memory of
 * the calling thread. NCCL's own threads work through that memory; the communicator's next call
 * ends it. If the calling thread ends meanwhile, or begins something for another communicator, the
 * real library corrupts memory or jumps into freed code. This one prints an error and aborts the
 * process. See fake.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fake/nccl/fake.h"

struct home { /* what a thread has begun; kept beyond its end while that is in flight */
    _Atomic bool used, ended;
    /* The communicator for which something has begun and not ended. */
    _Atomic(struct ncclComm *) begun;
};

static struct home homes[256]; /* static, because tests count calls of malloc */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

void fake_wrong(const char *what)
{
    fprintf(stderr, "fake NCCL: %s\n", what);
    abort();
}

static void end(void *arg)
{
    struct home *h = arg;
    atomic_store(&h->ended, true);
    if (!atomic_load(&h->begun))
        atomic_store(&h->used, false);
}

static void make_key(void)
{
    if (pthread_key_create(&key, end) != 0)
        fake_wrong("no key for what threads have begun");
}

static struct home *take(void)
{
    for (size_t i = 0; i < sizeof(homes) / sizeof(*homes); i++) {
        if (!atomic_exchange(&homes[i].used, true))
            return &homes[i];
    }
    fake_wrong("too many threads have begun something and ended");
}

static struct home *mine(void)
{
    pthread_once(&once, make_key);
    struct home *h = pthread_getspecific(key);
    if (h)
        return h;
    h = take();
    atomic_store(&h->ended, false);
    pthread_setspecific(key, h);
    return h;
}

static bool at_home(const struct ncclComm *c)
{
    return FAKE_NCCL_BUILT < 22700 && !c->blocking;
}

void home_begin(struct ncclComm *c)
{
    if (!at_home(c))
        return;
    struct home *h = mine();
    home_settle(c);
    if (atomic_load(&h->begun))
        fake_wrong("this thread has begun something for another communicator already");
    atomic_store(&h->begun, c);
    atomic_store(&c->home, h);
}

void home_check(struct ncclComm *c)
{
    const struct home *h = atomic_load(&c->home);
    if (h && atomic_load(&h->ended))
        fake_wrong("the thread that began this has ended, and its memory with it");
}

void home_settle(struct ncclComm *c)
{
    struct home *h = atomic_load(&c->home);
    home_check(c);
    if (h)
        atomic_store(&h->begun, NULL);
    atomic_store(&c->home, NULL);
}

void home_abort(struct ncclComm *c)
{
    const struct home *h = atomic_load(&c->home);
    if (h && FAKE_NCCL_BUILT < 21900 && h != mine())
        fake_wrong("an abort on another thread than the one that began it does not find it");
    home_settle(c);
}
