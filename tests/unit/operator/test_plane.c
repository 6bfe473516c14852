/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of what the coordinator plane's requests rest on, without a network: paths, keys, token
 * reviews.
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_rotation),     cmocka_unit_test(test_predecessors),
        cmocka_unit_test(test_certificates), cmocka_unit_test(test_reviews),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
