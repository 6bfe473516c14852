/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shm: what shm_attach() refuses, flags and doorbells between processes, the order of pipes,
 * abort.
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/transport/shm.h"
#include "tests/harness/shm_host.h"

enum { SECONDS = 200 };

static int again(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static void test_attach(void **state)
{
    (void)state;
    uint8_t token[16];
    struct shm *a = NULL, *b = NULL;
    struct err err = {0};
    assert_int_equal(shm_create(3, token, &a, &err), 0);
    assert_int_equal(shm_attach(again(a->fd), 2, 3, token, &b, &err), 0);
    assert_int_equal(b->fd, -1);
    assert_int_equal(b->cache_size, a->cache_size);
    assert_ptr_not_equal(a->base, b->base);
    shm_staging_of(b, 2)[a->staging_size - 1] = 7;
    assert_int_equal(shm_staging_of(a, 2)[a->staging_size - 1], 7);
    atomic_store(&shm_flags_of(a, 0)->in, 5);
    assert_int_equal(atomic_load(&shm_flags_of(b, 0)->in), 5);
    assert_int_equal(atomic_load(&shm_flags_of(b, 1)->in), 0);
    assert_true(shm_staging_of(a, 2) + a->staging_size == (uint8_t *)a->base + a->size);
    shm_find_spin(a);
    assert_int_equal(a->usable_cpus, 0); /* seat 1 has not attached yet */
    shm_destroy(b);
    shm_destroy(a);
    shm_destroy(NULL);
}

static void refuse(int fd, int seat, int seats, const uint8_t token[16], int want)
{
    struct shm *shm = NULL;
    struct err err = {0};
    assert_int_equal(shm_attach(fd, seat, seats, token, &shm, &err), want);
    assert_null(shm);
    assert_int_equal(err.code, want);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed in any case: shm_attach() owns it */
}

static void test_refuse(void **state)
{
    (void)state;
    uint8_t token[16];
    struct shm *a = NULL;
    assert_int_equal(shm_create(2, token, &a, NULL), 0);
    refuse(again(a->fd), 2, 2, token, -EINVAL);
    refuse(again(a->fd), -1, 2, token, -EINVAL);
    refuse(again(a->fd), 0, SHM_MAX_SEATS + 1, token, -EINVAL);
    refuse(again(a->fd), 1, 3, token, -EPROTO);
    token[15] ^= 1;
    refuse(again(a->fd), 1, 2, token, -EACCES);
    token[15] ^= 1;
    int plain = memfd_create("plain", MFD_CLOEXEC);
    assert_int_equal(ftruncate(plain, (off_t)a->size), 0);
    refuse(plain, 1, 2, token, -EPROTO);
    int empty = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(empty, (off_t)a->size), 0);
    assert_int_equal(fcntl(empty, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    refuse(empty, 1, 2, token, -EPROTO);
    refuse(open("/dev/null", O_RDWR | O_CLOEXEC), 1, 2, token, -EPROTO);
    /* The memory cannot be truncated, so no access gets SIGBUS. */
    assert_int_equal(ftruncate(a->fd, 0), -1);
    assert_int_equal(shm_create(0, token, &a, NULL), -EINVAL);
    assert_int_equal(shm_create(SHM_MAX_SEATS + 1, token, &a, NULL), -EINVAL);
    shm_destroy(a);
}

/* Many seats need only address space. */
static void test_many_seats(void **state)
{
    (void)state;
    uint8_t token[16];
    static const int sizes[] = {1, 64, 65, 512};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct shm *a = NULL;
        struct stat st;
        assert_int_equal(shm_create(sizes[i], token, &a, NULL), 0);
        assert_int_equal(fstat(a->fd, &st), 0);
        assert_true((size_t)st.st_blocks * 512 <= a->staging_size + (1u << 20));
        assert_true(a->size < (size_t)16 << 30);
        shm_destroy(a);
    }
}

static void test_open_files(void **state)
{
    (void)state;
    uint8_t token[16];
    int before = again(0);
    close(before);
    for (int i = 0; i < 20; i++) {
        struct shm *a = NULL, *b = NULL;
        assert_int_equal(shm_create(2, token, &a, NULL), 0);
        assert_int_equal(shm_attach(again(a->fd), 1, 2, token, &b, NULL), 0);
        shm_destroy(a);
        shm_destroy(b);
    }
    int after = again(0);
    close(after);
    assert_int_equal(before, after);
}

/* A forked child does not inherit the segment: reading it is SIGSEGV. */
static void test_fork(void **state)
{
    (void)state;
    uint8_t token[16];
    struct shm *a = NULL;
    assert_int_equal(shm_create(2, token, &a, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        unsigned char resident;
        _exit(mincore(a->base, 4096, &resident) == -1 && errno == ENOMEM ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    shm_destroy(a);
}

/* ---- doorbells ------------------------------------------------------------------------------ */

struct turn {
    struct shm *shm;
    int from;
    uint64_t want;
};

static int turn_come(void *ctx)
{
    struct turn *t = ctx;
    if (shm_aborted(t->shm))
        return -ECONNRESET;
    return atomic_load_explicit(&shm_flags_of(t->shm, t->from)->in, memory_order_acquire) < t->want;
}

/* The flag goes round: each rank waits for its neighbour's. A rank that misses its wake-up is
 * ended by alarm(). */
static int round_trip(struct mesh *mesh, void *ctx)
{
    (void)ctx;
    struct shm *shm = mesh->shm;
    int before = (mesh->rank + mesh->size - 1) % mesh->size;
    for (uint64_t i = 1; i <= 2000; i++) {
        struct turn t = {.shm = shm, .from = before, .want = mesh->rank == 0 ? i - 1 : i};
        if (shm_host_drive(mesh, turn_come, &t) < 0)
            return 1;
        atomic_store_explicit(&shm_flags_of(shm, mesh->rank)->in, i, memory_order_release);
        shm_ring_all(shm);
    }
    return 0;
}

static void test_doorbells(void **state)
{
    (void)state;
    assert_int_equal(shm_host_run(2, round_trip, NULL, SECONDS), 0);
    assert_int_equal(shm_host_run(5, round_trip, NULL, SECONDS), 0);
}

static int abort_wakes(struct mesh *mesh, void *ctx)
{
    (void)ctx;
    struct shm *shm = mesh->shm;
    struct turn t = {.shm = shm, .from = 0, .want = 1};
    if (mesh->rank == 0) {
        usleep(50000);
        shm_abort(shm, 2);
        shm_abort(shm, 1); /* the first abort counts */
    } else if (shm_host_drive(mesh, turn_come, &t) != -ECONNRESET) {
        return 1;
    }
    return shm_aborted(shm) == 3 ? 0 : 2;
}

static void test_abort(void **state)
{
    (void)state;
    assert_int_equal(shm_host_run(3, abort_wakes, NULL, SECONDS), 0);
}

static int spin_is_known(struct mesh *mesh, void *ctx)
{
    (void)ctx;
    if (mesh->shm->usable_cpus < 1)
        return 1;
    return mesh->shm->spin == (mesh->size <= mesh->shm->usable_cpus) ? 0 : 2;
}

static void test_spin(void **state)
{
    (void)state;
    assert_int_equal(shm_host_run(2, spin_is_known, NULL, SECONDS), 0);
    assert_int_equal(shm_host_run(9, spin_is_known, NULL, SECONDS), 0);
}

/* ---- pipes ---------------------------------------------------------------------------------- */

enum { PIPE_BYTES = 3000000 };

static uint8_t pipe_byte(int from, int to, int cls, size_t i)
{
    return (uint8_t)(i * 7 + i / 251 + (size_t)(from * 31 + to * 17 + cls));
}

struct flow {
    struct shm *shm;
    size_t sent[SHM_MAX_SEATS][SHM_PIPES], got[SHM_MAX_SEATS][SHM_PIPES];
    uint64_t read[SHM_MAX_SEATS][SHM_PIPES];
    int bad;
};

static bool flow_peer(struct flow *f, int peer, int cls)
{
    uint8_t chunk[7001];
    int me = f->shm->seat;
    size_t *sent = &f->sent[peer][cls], *got = &f->got[peer][cls];
    size_t n = (*sent * 13 + 1) % sizeof(chunk) + 1;
    bool moved = false;
    if (n > PIPE_BYTES - *sent)
        n = PIPE_BYTES - *sent;
    for (size_t i = 0; i < n; i++)
        chunk[i] = pipe_byte(me, peer, cls, *sent + i);
    n = shm_pipe_write(f->shm, (enum shm_pipes)cls, peer,
                       (struct iovec[]){{chunk, n / 3}, {chunk + n / 3, n - n / 3}}, 2,
                       &f->read[peer][cls]);
    *sent += n;
    moved = n > 0;
    n = shm_pipe_read(f->shm, (enum shm_pipes)cls, peer, chunk,
                      (*got * 11 + 1) % sizeof(chunk) + 1);
    for (size_t i = 0; i < n; i++)
        f->bad |= chunk[i] != pipe_byte(peer, me, cls, *got + i);
    *got += n;
    return moved || n > 0;
}

static bool flow_once(struct flow *f, bool *ret_done)
{
    bool done = true, moved = false;
    for (int peer = 0; peer < f->shm->seats; peer++)
        for (int cls = 0; peer != f->shm->seat && cls < SHM_PIPES; cls++) {
            moved |= flow_peer(f, peer, cls);
            done &= f->sent[peer][cls] == PIPE_BYTES && f->got[peer][cls] == PIPE_BYTES;
        }
    if (moved)
        shm_ring_all(f->shm);
    *ret_done = done;
    return moved;
}

static int flow_progress(void *ctx)
{
    struct flow *f = ctx;
    bool done = false;
    while (flow_once(f, &done) && !done && !f->bad)
        ;
    return f->bad ? -EIO : done ? 0 : 1;
}

static int pump(struct mesh *mesh, void *ctx)
{
    (void)ctx;
    struct flow *f = calloc(1, sizeof(*f));
    if (!f)
        return 2;
    f->shm = mesh->shm;
    int rc = shm_host_drive(mesh, flow_progress, f);
    free(f);
    return rc < 0;
}

static void test_pipes(void **state)
{
    (void)state;
    assert_int_equal(shm_host_run(2, pump, NULL, SECONDS), 0);
    assert_int_equal(shm_host_run(4, pump, NULL, SECONDS), 0);
}

static size_t write_pipe(struct shm *shm, enum shm_pipes which, void *src, size_t n)
{
    static uint64_t read[SHM_PIPES];
    const struct iovec iov = {src, n};
    return shm_pipe_write(shm, which, 1, &iov, 1, &read[which]);
}

static void test_pipe_full(void **state)
{
    (void)state;
    uint8_t token[16], byte = 1;
    struct shm *a = NULL, *b = NULL;
    assert_int_equal(shm_create(2, token, &a, NULL), 0);
    assert_int_equal(shm_attach(again(a->fd), 1, 2, token, &b, NULL), 0);
    size_t size = a->pipe_size[SHM_CONTROL];
    uint8_t *all = calloc(2, size);
    assert_non_null(all);
    assert_int_equal(shm_pipe_read(b, SHM_CONTROL, 0, all, size), 0);
    assert_int_equal(write_pipe(a, SHM_CONTROL, all, 2 * size), size);
    assert_int_equal(write_pipe(a, SHM_CONTROL, &byte, 1), 0);
    assert_int_equal(write_pipe(a, SHM_DATA, &byte, 1), 1);
    assert_int_equal(shm_pipe_read(b, SHM_CONTROL, 0, all, 5), 5);
    assert_int_equal(write_pipe(a, SHM_CONTROL, all, 100), 5);
    assert_int_equal(shm_pipe_read(b, SHM_CONTROL, 0, all, 2 * size), size);
    assert_int_equal(write_pipe(a, SHM_CONTROL, &byte, 0), 0);
    free(all);
    shm_destroy(a);
    shm_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attach),     cmocka_unit_test(test_refuse),
        cmocka_unit_test(test_many_seats), cmocka_unit_test(test_open_files),
        cmocka_unit_test(test_fork),       cmocka_unit_test(test_doorbells),
        cmocka_unit_test(test_abort),      cmocka_unit_test(test_spin),
        cmocka_unit_test(test_pipes),      cmocka_unit_test(test_pipe_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
