/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/election with a lease in a fake API server: two candidates, one that leaves
 * in order, one that the server refuses.
 *
 * takes: 9 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "operator/api/election.h"
#include "operator/api/lease.h"
#include "tests/harness/kube_server.h"
#include "tests/unit/api/api_case.h"

struct candidate {
    struct election *election;
    int started, stopped, left;
    int64_t term;
};

static void on_started(void *arg, int64_t term)
{
    struct candidate *c = arg;
    c->started++;
    c->term = term;
}

static void on_stopped(void *arg)
{
    ((struct candidate *)arg)->stopped++;
}

static void on_left(void *arg)
{
    ((struct candidate *)arg)->left++;
}

static void stand(struct candidate *c, const char *identity)
{
    struct election_config config = {.api = api,
                                     .namespace = "default",
                                     .name = "operator",
                                     .identity = identity,
                                     .duration_ms = 3000,
                                     .renew_ms = 2000,
                                     .retry_ms = 200,
                                     .started = on_started,
                                     .stopped = on_stopped,
                                     .arg = c};
    struct err err = {0};
    assert_int_equal(election_open(&c->election, &config, &err), 0);
}

static void wait_for(const int *counter, int n)
{
    uint64_t deadline = deadline_in_ms(60000);
    while (*counter < n && !deadline_passed(deadline))
        turn();
    assert_true(*counter >= n);
}

static void test_election(void **state)
{
    struct candidate a = {0}, b = {0};
    (void)state;
    stand(&a, "a");
    wait_for(&a.started, 1);
    assert_int_equal(a.term, 0);
    stand(&b, "b");
    uint64_t deadline = deadline_in_ms(
        4000); /* longer than the lease: the leader renews it, so b does not take it */
    while (!deadline_passed(deadline))
        turn();
    assert_true(election_leads(a.election) || a.stopped);
    /* The leader leaves in order: the other takes over at once. */
    election_leave(a.election, on_left);
    assert_int_equal(a.stopped, a.started);
    wait_for(&a.left, 1);
    election_close(a.election);
    uint64_t patience = deadline_in_ms(60000);
    while (!(b.term > a.term && election_leads(b.election)) && !deadline_passed(patience))
        turn();
    assert_true(b.term > a.term && b.started > b.stopped);
    /* The server refuses renewals: the leader stops before the lease expires, and leads again
     * later. */
    int started = b.started;
    kube_server_do("token nobody-has-it");
    wait_for(&b.stopped, started);
    assert_false(election_leads(b.election));
    assert_non_null(strstr(election_problem(b.election)->text, "401"));
    kube_server_do("token -");
    int64_t before = b.term;
    wait_for(&b.started, started + 1);
    assert_true(b.term > before);
    election_close(b.election);
}

/* ---- a renewal whose answer its sender has not waited for --------------------------------------
 */

#define LEASE "/apis/coordination.k8s.io/v1/namespaces/default/leases/operator"

static struct lease stored; /* as in the last answer */
static bool answered;

static void on_answer(void *arg, const struct api_answer *answer)
{
    (void)arg;
    assert_int_equal(answer->status, 200);
    assert_int_equal(lease_parse(answer->body, answer->len, &stored, NULL), 0);
    answered = true;
}

/* Reads the lease; with a body it writes it first, as its holder does. */
static void ask(const char *body)
{
    struct api_request q = {
        .method = body ? "PUT" : "GET", .path = LEASE, .body = body, .timeout_ms = 60000};
    uint64_t deadline = deadline_in_ms(60000);
    answered = false;
    assert_int_equal(api_send(api, &q, on_answer, NULL, NULL, NULL), 0);
    while (!answered && !deadline_passed(deadline))
        turn();
    assert_true(answered);
}

/* The lease is released all the same, so the next leader need not wait until it expires. */
static void test_leaving_in_a_renewal(void **state)
{
    struct candidate c = {0};
    (void)state;
    stand(&c, "c");
    wait_for(&c.started, 1);
    ask(NULL);
    auto_free char *renewal = lease_body(&stored, "default", "operator");
    ask(renewal);
    assert_string_equal(stored.holder, "c");
    election_leave(c.election, on_left);
    wait_for(&c.left, 1);
    assert_string_equal(election_problem(c.election)->text, "");
    election_close(c.election);
    ask(NULL);
    assert_string_equal(stored.holder, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_election),
                                       cmocka_unit_test(test_leaving_in_a_renewal)};
    return cmocka_run_group_tests_name("api/election", tests, api_case_setup, api_case_teardown);
}
