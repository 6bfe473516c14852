/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/link: messages between hvd-operator and hvd-plane, the connection, and the
 * operator's mirror of what the plane reports, also from a plane that somebody has taken over.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/base/clock.h"
#include "core/json/json.h"
#include "operator/link/link.h"
#include "operator/link/plane_message.h"
#include "operator/link/plane_mirror.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* The message as it arrives. */
static json_t *send_over(json_t *j)
{
    assert_non_null(j);
    auto_free char *text = json_write(j);
    json_t *ret = NULL;
    json_decref(j);
    assert_int_equal(json_read(text, strlen(text), "test", &ret, NULL), 0);
    return ret;
}

static void test_jobs_and_pods(void **state)
{
    const struct plane_job job = {.uid = "u-1",
                                  .namespace_ = "ml",
                                  .name = "digits",
                                  .key_hash = {1, 2, 255},
                                  .workers = 3,
                                  .min = 2,
                                  .max = 4,
                                  .slots = 8,
                                  .keep_places = true,
                                  .start_timeout = 7,
                                  .began = true};
    const struct plane_pod pod = {.uid = "p-1",
                                  .name = "digits-0-1",
                                  .worker = 0,
                                  .attempt = 1,
                                  .bound = true,
                                  .finished = true};
    struct plane_job job2;
    struct plane_pod pod2;
    const char *owner;
    (void)state;
    auto_json json_t *a = send_over(plane_write_job(&job));
    assert_int_equal(plane_read_job(a, &job2, NULL), 0);
    assert_string_equal(job2.uid, "u-1");
    assert_string_equal(job2.name, "digits");
    assert_memory_equal(job2.key_hash, job.key_hash, sizeof(job.key_hash));
    assert_true(job2.began && job2.max == 4 && job2.slots == 8 && job2.keep_places);
    json_object_set_new(a, "keyHash", json_string("0102"));
    assert_int_equal(plane_read_job(a, &job2, NULL), -EINVAL);
    json_object_del(a, "keyHash");
    assert_int_equal(plane_read_job(a, &job2, NULL), -EINVAL);

    auto_json json_t *b = send_over(plane_write_pod("u-1", &pod));
    assert_int_equal(plane_read_pod(b, &owner, &pod2, NULL), 0);
    assert_string_equal(owner, "u-1");
    assert_string_equal(pod2.name, "digits-0-1");
    assert_true(pod2.bound && !pod2.deleting && pod2.finished && pod2.attempt == 1);
    json_object_set_new(b, "more", json_true());
    assert_int_equal(plane_read_pod(b, &owner, &pod2, NULL), -EINVAL);
}

static struct plane_facts some_facts(int epoch)
{
    struct plane_facts f = {.there = true,
                            .state = "running",
                            .epoch = (uint32_t)epoch,
                            .size = 4,
                            .last_change = {.cause = "a loss", .unix_ms = 5, .ms = 1.5},
                            .first_failure = {.known = true, .rank = -1, .worker = 2, .code = -9},
                            .nfindings = 1,
                            .nfailures = 1};
    snprintf(f.waiting_for, sizeof(f.waiting_for), "ranks");
    snprintf(f.first_failure.text, sizeof(f.first_failure.text), "bad bytes \xff");
    return f;
}

static json_t *facts_message(const char *uid, int epoch)
{
    struct plane_facts f = some_facts(epoch);
    struct job_findings findings = {0};
    const struct job_finding one = {.failure = true, .id = "shm-size", .pods = {"digits-0-0"}};
    assert_int_equal(job_findings_add(&findings, &one), 0);
    json_t *j = plane_write_facts(uid, &f, &findings);
    job_findings_fini(&findings);
    return send_over(j);
}

static void test_facts(void **state)
{
    struct plane_facts f;
    struct job_findings findings;
    static const struct {
        const char *key;
        int kind; /* 0: a long text, 1: -1, 2: missing */
    } wrong[] = {{"waitingFor", 0},      {"state", 0}, {"epoch", 1},
                 {"findingsLeftOut", 1}, {"there", 2}, {"findings", 2}};
    char long_text[600];
    (void)state;
    auto_json json_t *j = facts_message("u", 3);
    assert_int_equal(plane_read_facts(j, &f, &findings, NULL), 0);
    assert_true(f.there && f.first_failure.known && !f.rebuilding);
    assert_int_equal(f.epoch, 3);
    assert_string_equal(f.waiting_for, "ranks");
    assert_string_equal(f.first_failure.text, "bad bytes ?");
    assert_int_equal(f.first_failure.rank, -1);
    assert_int_equal(findings.n, 1);
    assert_string_equal(findings.list[0].id, "shm-size");
    job_findings_fini(&findings);
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct err err = {0};
        auto_json json_t *bad = json_deep_copy(j);
        if (wrong[i].kind == 0)
            json_object_set_new(bad, wrong[i].key, json_string(long_text));
        else if (wrong[i].kind == 1)
            json_object_set_new(bad, wrong[i].key, json_integer(-1));
        else
            json_object_del(bad, wrong[i].key);
        assert_int_equal(plane_read_facts(bad, &f, NULL, &err), -EINVAL);
        assert_true(err.msg[0]);
    }
}

static void test_view(void **state)
{
    struct plane_worker workers[2] = {{.pod_uid = "p0", .connected = true, .idle_ms = -1},
                                      {.pod_uid = "p1",
                                       .state = "active",
                                       .batches = 7,
                                       .sets = 2,
                                       .descriptors = 40,
                                       .descriptors_max = 1024,
                                       .segments = 1ull << 33,
                                       .memory_left = 3,
                                       .memory_limit = 4,
                                       .communicators = 5,
                                       .gpu_memory_left = 1ull << 34,
                                       .gpu_memory = 1ull << 36,
                                       .broken = 1,
                                       .broken_since = 1234,
                                       .broken_set = "set 3"}};
    struct plane_epoch epochs[1] = {{.number = 4, .size = 2, .lost = true, .cost = 0.5}};
    struct plane_finding findings[1] = {{.pod = "d-0", .finding = {.status = FINDING_FAIL}}};
    const struct plane_view v = {.uid = "u",
                                 .facts = some_facts(9),
                                 .nworkers = 2,
                                 .nepochs = 1,
                                 .nfindings = 1,
                                 .workers = workers,
                                 .epochs = epochs,
                                 .findings = findings};
    struct plane_view got;
    (void)state;
    auto_json json_t *j = send_over(plane_write_view(&v));
    assert_int_equal(plane_read_view(j, &got, NULL), 0);
    assert_int_equal(got.nworkers, 2);
    assert_int_equal(got.workers[1].batches, 7);
    assert_int_equal(got.workers[0].sets, 0);
    assert_int_equal(got.workers[1].sets, 2);
    assert_int_equal(got.workers[1].descriptors, 40);
    assert_memory_equal(&got.workers[1], &workers[1], sizeof(workers[1]));
    assert_true(got.workers[0].connected && got.epochs[0].lost);
    assert_int_equal(got.facts.epoch, 9);
    assert_true(got.findings[0].finding.status == FINDING_FAIL);
    plane_view_fini(&got);
    json_t *list = json_object_get(j, "epochs");
    for (int i = 0; i < PLANE_EPOCHS_MAX; i++)
        json_array_append(list, json_array_get(list, 0));
    assert_int_equal(plane_read_view(j, &got, NULL), -EINVAL);
}

/* ---- the mirror ------------------------------------------------------------------------------ */

static struct {
    int changed, looked, reviewed, recovered, port;
    char uid[PLANE_UID_MAX];
} seen;

static void on_listening(void *arg, int port)
{
    (void)arg;
    seen.port = port;
}

static void on_changed(void *arg, const char *uid)
{
    (void)arg;
    seen.changed++;
    snprintf(seen.uid, sizeof(seen.uid), "%s", uid);
}

static void on_recovered(void *arg, bool lost, double seconds)
{
    (void)arg, (void)lost, (void)seconds;
    seen.recovered++;
}

static void on_review(void *arg, uint64_t id, const char *token)
{
    (void)arg, (void)id, (void)token;
    seen.reviewed++;
}

static void on_look(void *arg, const char *uid)
{
    (void)arg, (void)uid;
    seen.looked++;
}

static struct plane_mirror *new_mirror(void)
{
    const struct plane_mirror_config config = {.listening = on_listening,
                                               .changed = on_changed,
                                               .recovered = on_recovered,
                                               .review = on_review,
                                               .look = on_look};
    struct plane_mirror *m;
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(plane_mirror_create(&m, &config, NULL), 0);
    return m;
}

static int take(struct plane_mirror *m, json_t *j)
{
    struct err err = {0};
    int rc = plane_mirror_take(m, json_string_value(json_object_get(j, "type")), j, &err);
    assert_true(rc == 0 || err.msg[0]);
    json_decref(j);
    return rc;
}

static void test_mirror_facts(void **state)
{
    struct plane_mirror *m = new_mirror();
    struct plane_facts f;
    (void)state;
    assert_int_equal(take(m, facts_message("unknown", 1)), 0);
    assert_int_equal(seen.changed, 0);
    assert_false(plane_mirror_facts(m, "unknown", &f, NULL));
    assert_int_equal(plane_mirror_job(m, "u"), 0);
    assert_int_equal(take(m, facts_message("u", 1)), 0);
    assert_int_equal(take(m, facts_message("u", 1)), 0); /* the same again */
    assert_int_equal(seen.changed, 1);
    assert_string_equal(seen.uid, "u");
    assert_true(plane_mirror_facts(m, "u", &f, NULL));
    assert_int_equal(f.epoch, 1);
    plane_mirror_forget(m, "u");
    assert_false(plane_mirror_facts(m, "u", &f, NULL));
    assert_int_equal(take(m, facts_message("u", 2)), 0);
    assert_int_equal(seen.changed, 1);
    plane_mirror_destroy(m);
}

static json_t *view_message(const char *uid)
{
    struct plane_view v = {.facts = some_facts(1)};
    snprintf(v.uid, sizeof(v.uid), "%s", uid);
    return send_over(plane_write_view(&v));
}

static void test_mirror_views(void **state)
{
    struct plane_mirror *m = new_mirror();
    char uid[16];
    (void)state;
    assert_int_equal(take(m, view_message("u0")), 0); /* nobody asked for it */
    assert_null(plane_mirror_view(m, "u0"));
    assert_int_equal(seen.looked, 0);
    for (int i = 0; i < 2 * PLANE_VIEWS; i++) {
        snprintf(uid, sizeof(uid), "u%d", i);
        assert_int_equal(plane_mirror_job(m, uid), 0);
        assert_null(plane_mirror_view(m, uid));
        assert_null(plane_mirror_view(m, uid));
        assert_int_equal(seen.looked, i + 1);
        assert_int_equal(take(m, view_message(uid)), 0);
        assert_non_null(plane_mirror_view(m, uid));
        assert_string_equal(plane_mirror_view(m, uid)->uid, uid);
    }
    assert_int_equal(take(m, view_message("u0")), 0); /* too late: its place is taken */
    assert_null(plane_mirror_view(m, "u0"));
    plane_mirror_destroy(m);
}

/* What a plane that was taken over may send. */
static void test_mirror_refuses(void **state)
{
    struct plane_mirror *m = new_mirror();
    char token[PLANE_TOKEN_MAX + 2];
    memset(token, 'a', sizeof(token) - 1);
    token[sizeof(token) - 1] = '\0';
    (void)state;
    assert_int_equal(take(m, json_pack("{s:s, s:i}", "type", "listening", "port", 7443)), 0);
    assert_int_equal(seen.port, 7443);
    json_t *const wrong[] = {
        json_pack("{s:s}", "type", "config"),
        json_pack("{s:s, s:i}", "type", "listening", "port", 70000),
        json_pack("{s:s, s:s}", "type", "listening", "port", "1"),
        json_pack("{s:s, s:I, s:s}", "type", "review", "id", (json_int_t)1, "token", token),
        json_pack("{s:s, s:I, s:s}", "type", "review", "id", (json_int_t)-1, "token", "t"),
        json_pack("{s:s, s:b, s:f}", "type", "recovered", "lost", 1, "seconds", -1.0),
        json_pack("{s:s, s:b, s:f}", "type", "recovered", "lost", 1, "seconds", 1e300),
        json_pack("{s:s}", "type", "counts"),
        json_pack("{s:s, s:o}", "type", "view", "job", json_null()),
        json_pack("{s:s, s:[s]}", "type", "facts", "job", "u"),
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(take(m, wrong[i]), i == 0 ? -EPROTO : -EINVAL);
    assert_int_equal(seen.reviewed + seen.recovered, 0);
    const struct plane_counts n = {.joins = 3}, bad = {.joins = UINT64_MAX};
    assert_int_equal(take(m, send_over(plane_write_counts(&n))), 0);
    assert_int_equal(take(m, send_over(plane_write_counts(&bad))), -EINVAL);
    assert_int_equal(plane_mirror_counts(m)->joins, 3);
    plane_mirror_destroy(m);
}

/* ---- the connection -------------------------------------------------------------------------- */

struct end {
    struct link *link;
    int got, fail_at;
    char last[32], why[256];
    bool closes; /* within message() */
};

static int on_message(void *arg, const char *type, json_t *message, struct err *err)
{
    struct end *e = arg;
    (void)message;
    snprintf(e->last, sizeof(e->last), "%s", type);
    e->got++;
    if (e->closes) {
        link_close(e->link);
        e->link = NULL;
        return 0;
    }
    return e->got == e->fail_at ? err_set(err, EPROTO, "not this one") : 0;
}

static void on_broken(void *arg, const char *why)
{
    struct end *e = arg;
    snprintf(e->why, sizeof(e->why), "%s", why);
    link_close(e->link);
    e->link = NULL;
}

static void open_end(struct loop *loop, struct end *e, int fd)
{
    const struct link_config config = {
        .loop = loop, .fd = fd, .message = on_message, .broken = on_broken, .arg = e};
    assert_int_equal(link_open(&e->link, &config, NULL), 0);
}

static void turn_until(struct loop *loop, const bool *until, int ms)
{
    uint64_t end = deadline_in_ms((uint64_t)ms);
    while (!(until && *until) && !deadline_passed(end))
        loop_once(loop, 5);
}

static void test_link(void **state)
{
    struct loop loop;
    struct end a = {0}, b = {0};
    int fds[2];
    (void)state;
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_end(&loop, &a, fds[0]);
    open_end(&loop, &b, fds[1]);
    /* More than the socket takes at once, in frames up to the limit. */
    auto_free char *text = calloc(1, LINK_FRAME_MAX);
    memset(text, 'x', LINK_FRAME_MAX - 64);
    for (int i = 0; i < 5; i++)
        assert_int_equal(link_send(a.link, json_pack("{s:s, s:s}", "type", "big", "t", text)), 0);
    assert_int_equal(link_send(b.link, json_pack("{s:s}", "type", "small")), 0);
    uint64_t end = deadline_in_ms(10000);
    while ((b.got < 5 || a.got < 1) && !deadline_passed(end))
        loop_once(&loop, 5);
    assert_int_equal(b.got, 5);
    assert_string_equal(a.last, "small");
    memset(text, 'x', LINK_FRAME_MAX - 1);
    assert_int_equal(link_send(a.link, json_pack("{s:s, s:s}", "type", "big", "t", text)),
                     -EMSGSIZE);
    /* The receiver refuses a message: both ends learn of it. */
    b.fail_at = 6;
    assert_int_equal(link_send(a.link, json_pack("{s:s}", "type", "wrong")), 0);
    assert_int_equal(link_send(a.link, json_pack("{s:s}", "type", "never seen")), 0);
    turn_until(&loop, NULL, 50);
    assert_string_equal(b.why, "not this one");
    assert_string_equal(b.last, "wrong");
    assert_null(a.link);
    assert_true(a.why[0]);
    loop_fini(&loop);
}

/* Without a turn of the loop. */
static void test_link_push(void **state)
{
    struct loop loop;
    struct end a = {0};
    int fds[2];
    char bytes[64];
    (void)state;
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_end(&loop, &a, fds[0]);
    assert_int_equal(link_send(a.link, json_pack("{s:s}", "type", "x")), 0);
    assert_int_equal(link_send(a.link, json_pack("{s:s}", "type", "y")), 0);
    assert_int_equal(recv(fds[1], bytes, sizeof(bytes), MSG_DONTWAIT), -1);
    link_push(a.link);
    ssize_t n = recv(fds[1], bytes, sizeof(bytes), MSG_DONTWAIT);
    assert_int_equal(n, 2 * (4 + strlen("{\"type\":\"x\"}")));
    link_push(a.link);
    assert_int_equal(recv(fds[1], bytes, sizeof(bytes), MSG_DONTWAIT), -1);
    link_close(a.link);
    close(fds[1]);
    loop_fini(&loop);
}

static void test_link_closes_in_message(void **state)
{
    struct loop loop;
    struct end a = {0}, b = {.closes = true};
    int fds[2];
    (void)state;
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_end(&loop, &a, fds[0]);
    open_end(&loop, &b, fds[1]);
    for (int i = 0; i < 3; i++)
        link_send(a.link, json_pack("{s:s}", "type", "x"));
    turn_until(&loop, NULL, 30);
    assert_int_equal(b.got, 1);
    assert_null(a.link);
    loop_fini(&loop);
}

/* Bytes of a stranger. */
static void test_link_refuses(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } wrong[] = {{"\0\0\0\0", 4},
                 {"\xff\xff\xff\xff", 4},
                 {"\1\0\x10\0", 4},
                 {"\2\0\0\0{]", 6},
                 {"\2\0\0\0{}", 6},
                 {"\2\0\0\0[]", 6},
                 {"\x0a\0\0\0{\"type\":1}", 14},
                 {"\x10\0\0\0{\"type\":\"\xff\xff\xff\xff\"}x", 20}};
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct loop loop;
        struct end a = {0};
        int fds[2];
        assert_int_equal(loop_init(&loop), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        open_end(&loop, &a, fds[0]);
        assert_int_equal(write(fds[1], wrong[i].bytes, wrong[i].n), (ssize_t)wrong[i].n);
        uint64_t end = deadline_in_ms(2000);
        while (a.link && !deadline_passed(end))
            loop_once(&loop, 5);
        assert_null(a.link);
        assert_true(a.why[0] && a.got == 0);
        close(fds[1]);
        loop_fini(&loop);
    }
}

/* The other end reads nothing: the queue is bounded. */
static void test_link_is_not_read(void **state)
{
    struct loop loop;
    struct end a = {0};
    int fds[2], rc = 0, sent = 0;
    (void)state;
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_end(&loop, &a, fds[0]);
    auto_free char *text = calloc(1, LINK_FRAME_MAX);
    memset(text, 'x', LINK_FRAME_MAX - 64);
    while (rc == 0 && sent++ < 1000)
        rc = link_send(a.link, json_pack("{s:s, s:s}", "type", "big", "t", text));
    assert_in_range(sent, LINK_QUEUE_MAX / LINK_FRAME_MAX, LINK_QUEUE_MAX / LINK_FRAME_MAX + 3);
    turn_until(&loop, NULL, 20);
    assert_null(a.link);
    assert_non_null(strstr(a.why, "too slowly"));
    close(fds[1]);
    loop_fini(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_and_pods),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_mirror_facts),
        cmocka_unit_test(test_mirror_views),
        cmocka_unit_test(test_mirror_refuses),
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_link_push),
        cmocka_unit_test(test_link_closes_in_message),
        cmocka_unit_test(test_link_refuses),
        cmocka_unit_test(test_link_is_not_read),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
