/* SPDX-License-Identifier: Apache-2.0
 *
 * accept: connections from strangers during a job: garbage, other keys, other jobs, and many that
 * stay silent. They are refused and counted, and the job goes on.
 *
 * takes: 11 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/sock.h"
#include "core/transport/auth.h"
#include "core/transport/listener.h"
#include "tests/harness/mesh_ranks.h"
#include "tests/harness/world.h"

enum { FLOOD = 150 };

static int knock(struct mesh *mesh)
{
    int fd = sock_connect(&mesh->net->listener->card.addrs[0]);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (fd >= 0)
        poll(&p, 1, 20000);
    return fd;
}

/* Drives the mesh. Returns true when the other end of fd has closed the connection. */
static bool turned_away(struct mesh *mesh, int fd, int ms)
{
    uint64_t end = deadline_in_ms((uint64_t)ms);
    char byte[256];
    while (!deadline_passed(end)) {
        if (mesh_progress(mesh, NULL, NULL) < 0)
            return false;
        ssize_t got = recv(fd, byte, sizeof(byte), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return true;
        usleep(1000);
    }
    return false;
}

/* Shakes hands with this process as rank 0 would. */
static int shake(struct mesh *mesh, const uint8_t *key, uint32_t epoch, uint8_t cls)
{
    const struct auth_id id = {.cls = cls,
                               .epoch = epoch,
                               .size = (uint32_t)mesh->size,
                               .from = 0,
                               .to = (uint32_t)mesh->rank};
    struct auth a;
    int fd = knock(mesh), rc = 1;
    auth_connect(&a, key, &id, deadline_in_ms(20000));
    while (rc == 1) {
        rc = auth_progress(&a, fd, NULL);
        if (mesh_progress(mesh, NULL, NULL) < 0)
            rc = -1;
    }
    close(fd);
    return rc;
}

struct letter {
    struct link *link;
    struct buf msg;
};

static bool arrived(void *arg)
{
    struct letter *l = arg;
    return link_take(l->link, &l->msg) == 0;
}

static bool sent(void *arg)
{
    return link_flush(arg) == 0;
}

/* Rank 0 waits for "go" on the control link, then opens a data link while strangers flood the
 * listener. */
static int honest(struct mesh *mesh)
{
    struct letter l = {.link = mesh_link(mesh, 1, LINK_CONTROL)};
    struct err err = {0};
    int rc = mesh_ranks_until(mesh, arrived, &l, 20000, NULL, &err);
    struct xfer x;
    struct link *data = mesh_link(mesh, 1, LINK_DATA);
    xfer_start(&x, data, 3, "honest", 6);
    for (uint64_t end = deadline_in_ms(30000); rc == 0 && (rc = xfer_send(&x, 6)) == 1;) {
        if (mesh_progress(mesh, NULL, &err) < 0 || deadline_passed(end))
            break;
        rc = 0;
        usleep(500);
    }
    if (rc != 0)
        printf("rank 0: %d %s\n", rc, err_text(&err));
    buf_fini(&l.msg);
    mesh_ranks_leave(mesh);
    return rc != 0;
}

static int say(int step)
{
    printf("rank 1: step %d went wrong\n", step);
    return step;
}

static int visited(struct mesh *mesh)
{
    static const uint8_t wrong[MAC_KEY_SIZE] = {66};
    int flood[FLOOD], fd = knock(mesh);
    if (write(fd, "GET / HTTP/1.0\r\n\r\n", 18) != 18 || !turned_away(mesh, fd, 20000) ||
        mesh_refused(mesh) != 1)
        return say(1);
    close(fd);
    if (shake(mesh, wrong, mesh->epoch, LINK_DATA) != -ECONNRESET || mesh_refused(mesh) != 2)
        return say(2);
    /* the right key, with another roster, or for a link that is connected already */
    if (shake(mesh, mesh->net->key, mesh->epoch + 1, LINK_DATA) == 0 || mesh_refused(mesh) != 3)
        return say(3);
    /* local connections are not accepted over TCP: the proof is valid, and the connection is
     * refused */
    shake(mesh, mesh->net->key, mesh->epoch, AUTH_CLASS_LOCAL);
    for (int i = 0; i < FLOOD; i++) {
        flood[i] = knock(mesh);
        mesh_progress(mesh, NULL, NULL);
    }
    if (mesh->net->npending > 64 + mesh->size || mesh_refused(mesh) < 3 + FLOOD - 66)
        return say(4);
    struct link *control = mesh_link(mesh, 0, LINK_CONTROL);
    if (link_post(control, "go", 2) < 0 || mesh_ranks_until(mesh, sent, control, 20000, NULL, NULL))
        return say(5);
    char got[6];
    struct xfer x;
    xfer_start(&x, mesh_link(mesh, 0, LINK_DATA), 3, got, 6);
    int rc = 1;
    for (uint64_t end = deadline_in_ms(30000); rc == 1 && !deadline_passed(end); usleep(500)) {
        rc = mesh_progress(mesh, NULL, NULL);
        rc = rc == 0 ? xfer_recv(&x) : rc;
    }
    if (rc != 0 || memcmp(got, "honest", 6) != 0)
        return say(6);
    /* a silent connection is closed after a limit */
    if (!turned_away(mesh, flood[FLOOD - 1], 30000) || mesh->net->npending != 0)
        return say(7);
    for (int i = 0; i < FLOOD; i++)
        close(flood[i]);
    mesh_ranks_leave(mesh);
    return 0;
}

static int body(struct mesh *mesh, void *arg)
{
    return mesh->rank == 0 ? honest(mesh) : visited(mesh);
}

static void test_strangers(void **state)
{
    struct mesh_ranks m = {.n = 2, .hosts = "ab", .body = body};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

/* ---- a rank with another key is refused, and all ranks end within the time limit ---- */

static int ended(int rank, int rc, const struct err *err)
{
    if (rc == -ETIMEDOUT || rc == -ECONNRESET)
        return 7;
    printf("rank %d: %s\n", rank, err_text(err));
    return 1;
}

static int never(struct mesh *mesh, void *arg)
{
    mesh_destroy(mesh);
    return 2;
}

static void test_odd_key(void **state)
{
    struct mesh_ranks m = {
        .n = 3, .hosts = "abc", .odd_key = 2, .timeout_ms = 1500, .body = never, .no_mesh = ended};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 7);
}

/* ---- one rank is absent: the others name it ---- */

static _Atomic int *given_up; /* number of ranks that have timed out; shared with the ranks */

static void absent(int rank)
{
    if (rank == 2) {
        for (int i = 0; i < 30000 && atomic_load(given_up) < 2; i++)
            usleep(1000);
        _exit(7);
    }
}

static int names_two(int rank, int rc, const struct err *err)
{
    atomic_fetch_add(given_up, 1);
    /* Only a rank that waits for rank 2 itself can name it. The other ranks see that a peer gave
     * up. */
    if (rank == 0 && (rc != -ETIMEDOUT || !strstr(err->msg, "rank 2 did not connect")))
        printf("rank %d: %d %s\n", rank, rc, err_text(err));
    else if (rc < 0)
        return 7;
    return 1;
}

static void test_absent(void **state)
{
    static const char *const hosts[] = {"abc", "aba", "aaa"};
    given_up = world_shared(sizeof(*given_up));
    for (size_t i = 0; i < 3; i++) {
        atomic_store(given_up, 0);
        struct mesh_ranks m = {.n = 3,
                               .hosts = hosts[i],
                               .met = absent,
                               .timeout_ms = 2500,
                               .body = never,
                               .no_mesh = names_two};
        mesh_ranks_run(&m);
        mesh_ranks_expect(&m, 7);
    }
}

/* ---- descriptors run out for a while ---- */

/* Rank 1 sends "go" to rank 0 on the control link, which is connected. */
static int cue(struct mesh *mesh)
{
    struct letter l = {.link = mesh_link(mesh, !mesh->rank, LINK_CONTROL)};
    int rc = mesh->rank == 1 ? link_post(l.link, "go", 2) : 0;
    if (rc >= 0)
        rc = mesh->rank == 1 ? mesh_ranks_until(mesh, sent, l.link, 20000, NULL, NULL)
                             : mesh_ranks_until(mesh, arrived, &l, 20000, NULL, NULL);
    buf_fini(&l.msg);
    return rc;
}

static int starved(struct mesh *mesh, void *arg)
{
    struct rlimit all, few;
    getrlimit(RLIMIT_NOFILE, &all);
    few = all;
    few.rlim_cur = 3;
    if (cue(mesh) != 0)
        return 2;
    if (mesh->rank == 1)
        setrlimit(RLIMIT_NOFILE, &few);
    if (cue(mesh) != 0)
        return 3;
    /* rank 0 connects the data link; rank 1 cannot accept it yet */
    struct link *data = mesh_link(mesh, !mesh->rank, LINK_DATA);
    char byte = 'b';
    struct xfer x;
    xfer_start(&x, data, 1, &byte, 1);
    int rc = 1;
    for (int i = 0; rc == 1 && i < 40000; i++, usleep(500)) {
        if (i == 1600)
            setrlimit(RLIMIT_NOFILE, &all);
        if (mesh_progress(mesh, NULL, NULL) < 0)
            break;
        rc = mesh->rank == 0 ? xfer_send(&x, 1) : xfer_recv(&x);
        if (mesh->rank == 1 && rc == 0 && i < 1600)
            rc = -1;
    }
    setrlimit(RLIMIT_NOFILE, &all);
    mesh_ranks_leave(mesh);
    return rc != 0;
}

static void test_no_descriptors(void **state)
{
    struct mesh_ranks m = {.n = 2, .hosts = "ab", .body = starved};
    mesh_ranks_run(&m);
    mesh_ranks_expect(&m, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_odd_key),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_no_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
