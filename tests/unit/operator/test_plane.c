/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/coordinator without a network: paths, keys, token reviews, and a
 * job_coordinator: agents join and leave, and are declared lost only for good reasons.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <gnutls/x509.h>
#include <sodium.h>

#include "core/base/clock.h"
#include "core/json/json.h"
#include "core/member/authority.h"
#include "operator/coordinator/plane_private.h"
#include "operator/certificates.h"
#include "operator/keys.h"
#include "operator/review.h"

static void test_paths(void **state)
{
    static const char long_uid[] = "/jobs/0123456789012345678901234567890123456789012345678901"
                                   "23456789abcd/pods/b/v1/join";
    const char *const wrong[] = {"",
                                 "/v1/join",
                                 "/jobs/a",
                                 "/jobs//pods/b/v1/join",
                                 "/jobs/a/pods//v1/join",
                                 "/jobs/a/pods/b/v2/join",
                                 "/jobs/a/pods/b",
                                 long_uid};
    struct plane_path p;
    (void)state;
    assert_int_equal(plane_path("/jobs/a-1/pods/b-2/v1/events", &p), 0);
    assert_string_equal(p.job, "a-1");
    assert_string_equal(p.pod, "b-2");
    assert_string_equal(p.rest, "/v1/events");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(plane_path(wrong[i], &p), -EINVAL);
}

static void test_keys(void **state)
{
    struct keys a, b, c;
    struct err err = {0};
    char one[KEYS_JOB_MAX], two[KEYS_JOB_MAX];
    (void)state;
    assert_int_equal(keys_make(&a, &err), 0);
    auto_json json_t *data = keys_pack(&a);
    assert_non_null(data);
    assert_int_equal(keys_unpack(data, &b, &err), 0);
    keys_job(&a, "job-1", one);
    keys_job(&b, "job-1", two);
    assert_string_equal(one, two);
    keys_job(&a, "job-2", two);
    assert_string_not_equal(one, two);
    assert_int_equal(strncmp(one, PLANE_KEY_PREFIX, strlen(PLANE_KEY_PREFIX)), 0);

    assert_int_equal(keys_make(&c, &err), 0);
    json_object_set_new(data, "ca.key", json_bytes(c.ca_key_pem, strlen(c.ca_key_pem)));
    keys_fini(&b);
    assert_int_equal(keys_unpack(data, &b, &err), -EINVAL);
    assert_non_null(strstr(err_text(&err), "another one's"));
    json_object_set_new(data, "ca.key", json_string("!"));
    assert_int_equal(keys_unpack(data, &b, &err), -EINVAL);
    assert_non_null(strstr(err_text(&err), "ca.key"));
    json_object_del(data, "secret");
    assert_int_equal(keys_unpack(data, &b, &err), -EINVAL);
    keys_fini(&a);
    keys_fini(&c);
}

/* Returns whether a client that trusts only these CAs accepts the chain. */
static bool accepts(const char *ca, const char *chain)
{
    const gnutls_datum_t text = {(unsigned char *)chain, (unsigned)strlen(chain)};
    const gnutls_datum_t root = {(unsigned char *)ca, (unsigned)strlen(ca)};
    int nroots = 0;
    for (const char *at = ca; (at = strstr(at, "BEGIN")); at++)
        nroots++;
    gnutls_x509_trust_list_t list;
    gnutls_x509_crt_t *certs = NULL;
    unsigned n = 0, verdict = ~0u;
    assert_int_equal(gnutls_x509_trust_list_init(&list, 0), 0);
    assert_int_equal(
        gnutls_x509_trust_list_add_trust_mem(list, &root, NULL, GNUTLS_X509_FMT_PEM, 0, 0), nroots);
    assert_int_equal(gnutls_x509_crt_list_import2(&certs, &n, &text, GNUTLS_X509_FMT_PEM, 0), 0);
    assert_int_equal(gnutls_x509_trust_list_verify_crt(list, certs, n, 0, &verdict, NULL), 0);
    for (unsigned i = 0; i < n; i++)
        gnutls_x509_crt_deinit(certs[i]);
    gnutls_free(certs);
    gnutls_x509_trust_list_deinit(list, 1);
    return verdict == 0;
}

/* The CA is replaced three times: clients of each earlier one accept the newest chain, those of
 * another installation do not. No key of an earlier CA is kept. */
static void test_rotation(void **state)
{
    struct keys k[4], other;
    struct authority a, b;
    struct err err = {0};
    char before[KEYS_JOB_MAX], after[KEYS_JOB_MAX];
    (void)state;
    assert_int_equal(keys_make(&k[0], NULL), 0);
    assert_int_equal(keys_make(&other, NULL), 0);
    for (int i = 1; i < 4; i++)
        assert_int_equal(keys_rotate(&k[i - 1], 0, &k[i], &err), 0);
    assert_int_equal(keys_issue(&k[3], "name", 3600, &a, &err), 0);
    assert_int_equal(keys_issue(&other, "name", 3600, &b, &err), 0);
    for (int i = 0; i < 4; i++) {
        auto_free char *roots = keys_roots(&k[i]);
        assert_true(accepts(roots, a.cert_pem));
        assert_false(accepts(roots, b.cert_pem));
    }
    keys_job(&k[0], "job", before);
    keys_job(&k[3], "job", after);
    assert_string_equal(before, after);
    int64_t made, until, now = (int64_t)time(NULL);
    assert_int_equal(authority_span(a.cert_pem, &made, &until, NULL), 0);
    assert_in_range(until - now, 3590, 3600);
    assert_int_equal(authority_span("none", &made, &until, &err), -EINVAL);

    auto_json json_t *data = keys_pack(&k[3]);
    struct keys read;
    assert_int_equal(keys_unpack(data, &read, &err), 0);
    assert_string_equal(read.cross_pem, k[3].cross_pem);
    assert_string_equal(read.old_pem, k[3].old_pem);
    auto_free char *text = json_write(data);
    assert_null(strstr(text, k[2].ca_key_pem + 40));
    keys_fini(&read);
    for (int i = 0; i < 4; i++)
        keys_fini(&k[i]);
    keys_fini(&other);
    authority_fini(&a);
    authority_fini(&b);
}

static int count(const char *pem)
{
    int n = 0;
    for (const char *at = pem; (at = strstr(at, "BEGIN")); at++)
        n++;
    return n;
}

/* A predecessor is kept as long as a pod may need it, however old it is, and not longer. */
static void test_predecessors(void **state)
{
    struct keys k[KEYS_OLD_MAX + 1], next;
    struct authority a;
    struct err err = {0};
    int64_t made, until, ca_until, now = (int64_t)time(NULL);
    (void)state;
    assert_int_equal(keys_make(&k[0], NULL), 0);
    for (int i = 1; i <= KEYS_OLD_MAX; i++) {
        assert_int_equal(keys_rotate(&k[i - 1], 0, &k[i], &err), 0);
        assert_int_equal(count(k[i].old_pem), i);
        assert_int_equal(count(k[i].cross_pem), i);
    }
    /* A pod of the first CA connects until that expires. */
    assert_int_equal(authority_span(k[1].cross_pem, &made, &until, NULL), 0);
    assert_int_equal(authority_span(k[0].ca_pem, &made, &ca_until, NULL), 0);
    assert_int_equal(until, ca_until);
    auto_free char *first = keys_roots(&k[0]);
    assert_int_equal(keys_issue(&k[KEYS_OLD_MAX], "name", 3600, &a, &err), 0);
    assert_true(accepts(first, a.cert_pem));
    authority_fini(&a);
    /* All are needed: nothing is dropped, the CA stays. */
    assert_int_equal(keys_rotate(&k[KEYS_OLD_MAX], 0, &next, &err), -ENOSPC);
    assert_non_null(strstr(err.msg, "Delete the oldest pods"));
    /* Every pod is newer than the present CA, so only pods of that are between. */
    assert_int_equal(keys_rotate(&k[KEYS_OLD_MAX], now + 60, &next, &err), 0);
    assert_string_equal(next.old_pem, k[KEYS_OLD_MAX].ca_pem);
    assert_int_equal(count(next.cross_pem), 1);
    auto_free char *last = keys_roots(&k[KEYS_OLD_MAX]);
    assert_int_equal(keys_issue(&next, "name", 3600, &a, &err), 0);
    assert_true(accepts(last, a.cert_pem));
    assert_false(accepts(first, a.cert_pem));
    authority_fini(&a);
    keys_fini(&next);
    for (int i = 0; i <= KEYS_OLD_MAX; i++)
        keys_fini(&k[i]);
}

static void test_certificates(void **state)
{
#define DAY INT64_C(86400)
    static const struct {
        int64_t now;
        const char *problem, *ca_problem;
        bool due, ca_due;
        enum certificates_state state;
        const char *says;
    } rows[] = {
        {3 * DAY, "", "", false, false, CERTIFICATES_FINE, ""},
        {4 * DAY, "", "", true, false, CERTIFICATES_FINE, ""},
        {4 * DAY, "no", "", true, false, CERTIFICATES_FINE, ""}, /* it is tried again */
        {5 * DAY, "no", "", true, false, CERTIFICATES_STUCK,
         "expires at 1970-01-07T00:00:00Z and could not be renewed: no. From"},
        {7 * DAY, "no", "no", true, false, CERTIFICATES_STUCK, "delete the Secret"},
        {20 * DAY, "", "", true, true, CERTIFICATES_FINE, ""},
        {20 * DAY, "", "no", true, true, CERTIFICATES_CA_STUCK,
         "could not be replaced, and is tried again: no. It expires at 1970-01-31T00:00:00Z"},
        {19 * DAY, "", "no", true, false, CERTIFICATES_FINE, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct certificates c = {
            0, 6 * DAY, 0, 30 * DAY, 365 * DAY, rows[i].problem, rows[i].ca_problem};
        char text[1024];
        if (certificates_judge(&c, rows[i].now, text, sizeof(text)) != rows[i].state ||
            !strstr(text, rows[i].says) || certificates_due(&c, rows[i].now) != rows[i].due ||
            certificates_ca_due(&c, rows[i].now) != rows[i].ca_due)
            fail_msg("row %zu: %s", i, text);
        assert_int_equal(*certificates_reason(rows[i].state) == '\0', !*rows[i].says);
    }
    const struct certificates old = {0, 6 * DAY, 0, 3650 * DAY, 365 * DAY, "", ""};
    assert_false(certificates_ca_due(&old, 365 * DAY - 1));
    assert_true(certificates_ca_due(&old, 365 * DAY));
}

static void test_reviews(void **state)
{
    static const struct {
        const char *text;
        bool known;
        const char *pod;
    } cases[] = {
        {"{\"status\":{\"authenticated\":true,\"audiences\":[\"hvd-operator\"],\"user\":{\"extra\":"
         "{\"authentication.kubernetes.io/pod-uid\":[\"u\"]}}}}",
         true, "u"},
        {"{\"status\":{\"authenticated\":true,\"audiences\":[\"other\"],\"user\":{\"extra\":"
         "{\"authentication.kubernetes.io/pod-uid\":[\"u\"]}}}}",
         false, "u"},
        {"{\"status\":{\"authenticated\":false,\"error\":\"expired\"}}", false, ""},
        {"{\"status\":{\"authenticated\":true,\"audiences\":[\"hvd-operator\"],\"user\":{}}}", true,
         ""},
        {"{\"status\":{}}", false, ""},
    };
    struct plane_review r;
    struct err err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(review_read(cases[i].text, strlen(cases[i].text), &r, &err), 0);
        assert_int_equal(r.known, cases[i].known);
        assert_string_equal(r.pod_uid, cases[i].pod);
    }
    assert_int_equal(review_read("[]", 2, &r, &err), -EINVAL);
    assert_int_equal(review_read("{\"status\":1}", 12, &r, &err), -EINVAL);
    char *text = review_write("a\"b");
    assert_non_null(strstr(text, "\"token\":\"a\\\"b\""));
    free(text);
}

/* ---- one job -------------------------------------------------------------------------------- */

static uint64_t now;
static uint64_t seq;
static struct gather gather = {.base_ms = GATHER_MS};

static void on_changed(void *arg, struct job_coordinator *job)
{
    (void)arg, (void)job;
}

static struct plane_job job_of(int workers, int min, int max)
{
    return (struct plane_job){.uid = "job",
                              .namespace_ = "default",
                              .name = "job",
                              .workers = workers,
                              .min = min,
                              .max = max,
                              .slots = 1,
                              .elastic = true};
}

static struct plane_pod pod_of(int i, bool deleting, bool over)
{
    static char uid[8][16], name[8][32];
    snprintf(uid[i], sizeof(uid[i]), "p%d", i);
    snprintf(name[i], sizeof(name[i]), "job-%d-0", i);
    return (struct plane_pod){.uid = uid[i],
                              .name = name[i],
                              .worker = i,
                              .bound = true,
                              .deleting = deleting,
                              .finished = over};
}

static int post(struct job_coordinator *c, int pod, const char *path, char *body)
{
    char peer[16];
    struct server_reply reply = {0};
    struct server_request q = {.method = "POST",
                               .path = path,
                               .agent = "",
                               .body = body,
                               .len = strlen(body),
                               .peer = peer};
    snprintf(peer, sizeof(peer), "p%d", pod);
    assert_int_equal(service_handle(&c->service, &q, &reply), 0);
    free(reply.body);
    free(body);
    return reply.status;
}

static int join(struct job_coordinator *c, int pod)
{
    struct join_body body = {.slots = 1, .pid = 1};
    snprintf(body.agent, sizeof(body.agent), "p%d.x", pod);
    snprintf(body.host, sizeof(body.host), "h");
    int status = post(c, pod, "/v1/join", join_write(&body));
    now = clock_ns();
    job_coordinator_tick(c, false, now);
    return status;
}

/* The agent's only member has started and reports its card. */
static void card(struct job_coordinator *c, int pod, enum card_why why)
{
    struct roster *r = &c->roster;
    struct card one = {.why = why, .epoch = r->epoch};
    struct cards_body body = {.seq = ++seq, .epoch = r->epoch + 1, .n = 1, .cards = &one};
    while (strncmp(r->agents.list[r->members.list[one.member].agent].uid,
                   (char[]){'p', (char)('0' + pod), 0}, 2) != 0)
        one.member++;
    snprintf(body.agent, sizeof(body.agent), "p%d.x", pod);
    buf_put_u32(&one.bytes, (uint32_t)one.member);
    assert_int_equal(post(c, pod, "/v1/cards", cards_write(&body)), 204);
    buf_fini(&one.bytes);
}

static void started(struct job_coordinator *c, int pod)
{
    struct report_item item = {.type = REPORT_STARTED, .pid = 5};
    struct report_body body = {.seq = ++seq, .n = 1, .items = &item};
    const struct roster *r = &c->roster;
    while (strncmp(r->agents.list[r->members.list[item.member].agent].uid,
                   (char[]){'p', (char)('0' + pod), 0}, 2) != 0)
        item.member++;
    snprintf(body.agent, sizeof(body.agent), "p%d.x", pod);
    assert_int_equal(post(c, pod, "/v1/report", report_write(&body)), 204);
}

static struct job_coordinator *make(int workers, int min, int max)
{
    struct job_coordinator *c;
    struct plane_job job = job_of(workers, min, max);
    seq = 0;
    now = clock_ns();
    assert_int_equal(job_coordinator_create(&c, &job, 3, &gather, on_changed, NULL, NULL), 0);
    for (int i = 0; i < workers; i++) {
        struct plane_pod pod = pod_of(i, false, false);
        assert_int_equal(job_coordinator_pod(c, &pod, NULL), 0);
    }
    job_coordinator_tick(c, false, now);
    return c;
}

static struct job_coordinator *train(int workers, int min, int max)
{
    struct job_coordinator *c = make(workers, min, max);
    for (int i = 0; i < workers; i++)
        assert_int_equal(join(c, i), 200);
    for (int i = 0; i < workers; i++) {
        started(c, i);
        card(c, i, CARD_JOIN);
    }
    assert_int_equal(roster_epoch_number(c->roster.epoch), 1);
    assert_int_equal(c->roster.epoch >> ROSTER_TERM_SHIFT, 3);
    assert_int_equal(c->roster.size, workers);
    return c;
}

static void test_first_world_waits_for_bound_pods(void **state)
{
    struct job_coordinator *c = make(2, 1, 4);
    struct plane_pod late = pod_of(1, false, true);
    (void)state;
    assert_int_equal(join(c, 0), 200);
    started(c, 0);
    card(c, 0, CARD_JOIN);
    job_coordinator_tick(c, false, clock_ns());
    assert_int_equal(c->roster.epoch, 0);
    assert_int_equal(job_coordinator_pod(c, &late, NULL), 0); /* its agent never joins */
    job_coordinator_tick(c, false, clock_ns());
    assert_int_equal(c->roster.size, 1);
    assert_int_equal(roster_epoch_number(c->roster.epoch), 1);
    job_coordinator_destroy(c);
}

static void test_who_is_not_lost(void **state)
{
    struct job_coordinator *c = train(3, 1, 4);
    (void)state;
    now = clock_ns();
    job_coordinator_closed(c, "p1.x", now);
    job_coordinator_tick(c, false, now + 5 * CLOCK_S);
    assert_int_equal(job_coordinator_count_agents(c),
                     3);                  /* a closed connection alone is not a loss yet */
    card(c, 0, CARD_REVOKED);             /* another rank has seen a loss */
    now = c->roster.next.answering_since; /* measured without the clock: on a slow machine 25 ms may
                                             have passed */
    assert_int_not_equal(now, 0);
    job_coordinator_tick(c, false, now + 1 * CLOCK_MS);
    assert_int_equal(job_coordinator_count_agents(c), 3);
    job_coordinator_tick(c, false, now + 25 * CLOCK_MS);
    assert_int_equal(job_coordinator_count_agents(c), 2);
    assert_int_equal(c->losses, 1);
    card(c, 2, CARD_REVOKED);
    assert_int_equal(c->roster.size, 2);
    job_coordinator_tick(c, true, clock_ns() + 100 * CLOCK_S); /* the plane itself was late */
    assert_int_equal(job_coordinator_count_agents(c), 2);
    job_coordinator_tick(c, false, clock_ns() + 200 * CLOCK_S);
    assert_int_equal(job_coordinator_count_agents(c), 0);
    job_coordinator_destroy(c);
}

/* A scale-down removes the last worker; an eviction keeps the target. */
static void test_who_leaves(void **state)
{
    struct job_coordinator *c = train(3, 1, 4);
    struct plane_job two = job_of(2, 1, 4);
    struct plane_pod evicted = pod_of(0, true, false);
    (void)state;
    assert_int_equal(job_coordinator_update(c, &two, NULL), 0);
    for (int i = 0; i < c->roster.members.n; i++)
        assert_int_equal(c->roster.members.list[i].leaving,
                         c->roster.agents.list[c->roster.members.list[i].agent].order == 2);
    for (int i = 0; i < 3; i++)
        card(c, i, CARD_BOUNDARY);
    assert_int_equal(c->roster.size, 2);
    assert_int_equal(job_coordinator_pod(c, &evicted, NULL), 0);
    job_coordinator_tick(c, false, clock_ns());
    for (int i = 0; i < 2; i++)
        card(c, i, CARD_BOUNDARY);
    /* The replacement starts at once on the idle agent of worker 2. */
    assert_int_equal(c->roster.target, 2);
    assert_int_equal(c->roster.size, 1);
    job_coordinator_destroy(c);
}

/* Two pods are deleted together, and an older state of one of them arrives in between: both leave
 * in one epoch. */
static void test_two_leave_together(void **state)
{
    struct job_coordinator *c = train(4, 1, 4);
    (void)state;
    struct plane_pod told[] = {pod_of(0, true, false), pod_of(1, true, false),
                               pod_of(1, false, false)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(job_coordinator_pod(c, &told[i], NULL), 0);
    job_coordinator_tick(c, false, clock_ns());
    for (int i = 0; i < 4; i++)
        card(c, i, CARD_BOUNDARY);
    assert_int_equal(c->roster.size, 2);
    job_coordinator_destroy(c);
}

/* A job that stops being elastic with as many workers as before keeps them all from then on. */
static void test_not_elastic_any_more(void **state)
{
    struct job_coordinator *c = train(3, 1, 4);
    struct plane_job fixed = job_of(3, 3, 3);
    (void)state;
    fixed.elastic = false;
    assert_int_equal(job_coordinator_update(c, &fixed, NULL), 0);
    assert_int_equal(c->roster.elastic.min, 3);
    assert_int_equal(c->roster.elastic.max, 3);
    job_coordinator_destroy(c);
}

/* ---- epochs -----------------------------------------------------------------------------------
 */

static void repaired(struct job_coordinator *c, int pod, uint64_t ns)
{
    struct report_item item = {.type = REPORT_REPAIRED, .pid = 5, .epoch = c->roster.epoch};
    struct report_body body = {.seq = ++seq, .n = 1, .items = &item};
    const struct roster *r = &c->roster;
    item.ns = ns;
    while (strncmp(r->agents.list[r->members.list[item.member].agent].uid,
                   (char[]){'p', (char)('0' + pod), 0}, 2) != 0)
        item.member++;
    snprintf(body.agent, sizeof(body.agent), "p%d.x", pod);
    assert_int_equal(post(c, pod, "/v1/report", report_write(&body)), 204);
}

/* The cost of a loss is that of its slowest rank; it is returned once, when it is final. */
static void test_epochs(void **state)
{
    struct job_coordinator *c = train(3, 1, 4);
    struct plane_job one = job_of(1, 1, 4);
    bool lost = false;
    double ms = 0;
    (void)state;
    now = clock_ns();
    job_coordinator_tick(c, false, now);
    assert_int_equal(c->history.n, 1);
    assert_true(c->history.list[0].first);
    job_coordinator_closed(c, "p1.x", now);
    card(c, 0, CARD_REVOKED);
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    job_coordinator_tick(c, false, clock_ns());
    card(c, 2, CARD_REVOKED);
    job_coordinator_tick(c, false, clock_ns());
    repaired(c, 0, 7000 * CLOCK_MS);
    repaired(c, 2, 9000 * CLOCK_MS);
    now = clock_ns();
    job_coordinator_tick(c, false, now);
    assert_int_equal(c->history.n, 2);
    assert_int_equal(c->history.list[1].size, 2);
    assert_non_null(strstr(c->history.list[1].cause, "its agent has closed the connection"));
    assert_false(epoch_history_next_final(&c->history, now, &lost, &ms));
    assert_true(epoch_history_next_final(&c->history, now + 3 * CLOCK_S, &lost, &ms));
    assert_true(lost);
    assert_float_equal(ms, 9000, 0.1);
    assert_false(epoch_history_next_final(&c->history, now + 3 * CLOCK_S, &lost, &ms));
    /* both reach a boundary and one leaves: no loss */
    assert_int_equal(job_coordinator_update(c, &one, NULL), 0);
    card(c, 0, CARD_BOUNDARY);
    card(c, 2, CARD_BOUNDARY);
    now = clock_ns();
    job_coordinator_tick(c, false, now);
    assert_true(epoch_history_next_final(&c->history, now + 3 * CLOCK_S, &lost, &ms));
    assert_false(lost);
    assert_int_equal(c->history.planned, 1);
    assert_int_equal(c->history.lost, 1);
    job_coordinator_destroy(c);
}

/* An epoch with all members of the last one is no loss, at a boundary or not. */
static void test_epoch_of_all(void **state)
{
    struct job_coordinator *c = train(2, 1, 4);
    (void)state;
    job_coordinator_tick(c, false, clock_ns());
    card(c, 0, CARD_REVOKED);
    card(c, 1, CARD_REVOKED);
    job_coordinator_tick(c, false, clock_ns());
    assert_int_equal(c->history.n, 2);
    assert_int_equal(c->history.planned, 1);
    assert_int_equal(c->history.lost, 0);
    job_coordinator_destroy(c);
}

static void test_last_epochs_are_kept(void **state)
{
    struct roster r = {.size = 2};
    struct epoch_history all = {0};
    bool lost;
    double ms;
    int counted = 0;
    (void)state;
    for (uint32_t i = 1; i <= 3 * EPOCH_HISTORY_MAX; i++) {
        r.epoch = i;
        r.last = (struct roster_last){.epoch = i, .at = i, .took = CLOCK_MS};
        snprintf(r.last.cause, sizeof(r.last.cause), "cause %u", i);
        epoch_history_update(&all, &r);
        counted += epoch_history_next_final(&all, i, &lost, &ms);
    }
    assert_int_equal(all.n, EPOCH_HISTORY_MAX);
    assert_int_equal(all.list[all.n - 1].epoch, 3 * EPOCH_HISTORY_MAX);
    assert_string_equal(all.list[0].cause, "cause 65");
    counted += epoch_history_next_final(&all, 10 * CLOCK_S, &lost, &ms);
    assert_int_equal(counted, 3 * EPOCH_HISTORY_MAX - 1); /* all but the first */
    epoch_history_fini(&all);
}

static void test_refused(void **state)
{
    struct job_coordinator *c = make(2, 1, 4);
    struct join_body body = {.slots = 1, .pid = 1, .agent = "p1.x", .host = "h"};
    struct plane_job odd = job_of(2, 3, 4);
    struct plane_pod over = pod_of(0, false, true);
    struct err err = {0};
    (void)state;
    assert_int_equal(post(c, 0, "/v1/join", join_write(&body)), 403);
    assert_int_equal(job_coordinator_update(c, &odd, &err), -EINVAL);
    assert_int_equal(job_coordinator_pod(c, &over, NULL), 0);
    assert_int_equal(join(c, 0), 409);
    assert_int_equal(join(c, 1), 200);
    job_coordinator_end(c, clock_ns());
    snprintf(body.agent, sizeof(body.agent), "p1.y");
    assert_int_equal(post(c, 1, "/v1/join", join_write(&body)), 409);
    job_coordinator_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_predecessors),
        cmocka_unit_test(test_certificates),
        cmocka_unit_test(test_reviews),
        cmocka_unit_test(test_first_world_waits_for_bound_pods),
        cmocka_unit_test(test_who_is_not_lost),
        cmocka_unit_test(test_two_leave_together),
        cmocka_unit_test(test_who_leaves),
        cmocka_unit_test(test_not_elastic_any_more),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_epoch_of_all),
        cmocka_unit_test(test_last_epochs_are_kept),
        cmocka_unit_test(test_refused),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
