/* SPDX-License-Identifier: Apache-2.0
 *
 * test_page: the web page without a network: paths and access, the JSON of thousands of jobs and
 * pods, untrusted texts, limits, and failing allocations.
 *
 * takes: 3 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "core/json/json.h"
#include "operator/driver/driver_private.h"
#include "operator/page/page_private.h"
#include "operator/page/page_route.h"
#include "tests/harness/fail_alloc.h"

/* ---- paths and names --------------------------------------------------------------------------
 */

static void test_routes(void **state)
{
    static const struct {
        const char *path;
        enum page_what what;
    } cases[] = {
        {"/", PAGE_FILE},
        {"/page.js", PAGE_FILE},
        {"/v1/jobs", PAGE_JOBS},
        {"/v1/jobs/ml/mnist-2.b", PAGE_JOB},
        {"", PAGE_NOTHING},
        {"/page.js/", PAGE_NOTHING},
        {"/v1/jobsx", PAGE_NOTHING},
        {"/v1/jobs/", PAGE_NOTHING},
        {"/v1/jobs/ml", PAGE_NOTHING},
        {"/v1/jobs/ml/", PAGE_NOTHING},
        {"/v1/jobs//mnist", PAGE_NOTHING},
        {"/v1/jobs/ml/mnist/", PAGE_NOTHING},
        {"/v1/jobs/ml/a/b", PAGE_NOTHING},
        {"/v1/jobs/ml/<b>", PAGE_NOTHING},
        {"/v1/jobs/ml/a b", PAGE_NOTHING},
    };
    char path[600] = "/v1/jobs/ml/";
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (page_route(cases[i].path).what != cases[i].what)
            fail_msg("%s", cases[i].path);
    struct page_route r = page_route("/v1/jobs/ml/mnist-2.b");
    assert_string_equal(r.namespace_, "ml");
    assert_string_equal(r.name, "mnist-2.b");
    size_t n = strlen(path);
    memset(path + n, 'a', 255);
    assert_int_equal(page_route(path).what, PAGE_JOB);
    path[n + 255] = 'a';
    assert_int_equal(page_route(path).what, PAGE_NOTHING);
}

static void test_hosts(void **state)
{
    static const char *const ours[] = {"localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80",
                                       "[::1]"};
    static const char *const others[] = {"",           "evil.example",   "localhost.evil.example",
                                         "localhosts", "localhost:80.x", "127.0.0.1.evil.example",
                                         "127.0.0.11", "[::1].evil",     "::1"};
    (void)state;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        assert_true(page_is_our_host(ours[i]));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (page_is_our_host(others[i]))
            fail_msg("%s", others[i]);
}

/* ---- filling the caches -----------------------------------------------------------------------
 */

static struct driver *new_driver(void)
{
    struct driver *d = calloc(1, sizeof(*d));
    assert_non_null(d);
    entries_init(&d->entries, d);
    d->leading = true;
    return d;
}

static struct entry *add_job(struct driver *d, int number, enum job_phase phase,
                             const char *message)
{
    char name[32];
    snprintf(name, sizeof(name), "job-%d", number);
    struct entry *e = entries_make(&d->entries, "ml", name);
    struct job_item *item = calloc(1, sizeof(*item));
    assert_non_null(e);
    assert_non_null(item);
    item->refs = 1;
    item->job = (struct hvdjob){
        .ours = true, .elastic = true, .workers = 10, .min = 1, .max = 20, .slots = 1};
    item->job.namespace_ = strdup("ml");
    item->job.name = strdup(name);
    item->job.version = strdup("1");
    snprintf(item->job.uid, sizeof(item->job.uid), "uid-%d", number);
    item->job.created = 1700000000000;
    item->job.status.phase = phase;
    item->job.status.message = strdup(message);
    e->job = item;
    return e;
}

static struct pod *add_pod(struct entry *e, int worker, enum pod_phase phase)
{
    char name[64];
    struct pod_item *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    snprintf(name, sizeof(name), "%.40s-%d-0", e->job->job.name, worker);
    p->pod = (struct pod){.worker = worker, .phase = phase, .ready = true};
    p->pod.name = strdup(name);
    p->pod.job = strdup(e->job->job.name);
    p->pod.node = strdup("node-with-a-name-7");
    snprintf(p->pod.uid, sizeof(p->pod.uid), "pod-%.50s", name);
    assert_int_equal(entry_add_pod(e, p), 0);
    return &p->pod;
}

static void free_driver(struct driver *d)
{
    for (struct entry *e = entries_next(&d->entries, NULL); e; e = entries_next(&d->entries, e)) {
        for (int i = 0; i < e->npods; i++)
            items_pod_destroy(e->pods[i]);
        e->npods = 0;
        items_job_unref(e->job);
        e->job = NULL;
    }
    entries_fini(&d->entries);
    free(d);
}

/* Parses the response with jansson. */
static json_t *read_back(struct buf *text)
{
    json_t *j = NULL;
    struct err err = {0};
    assert_false(text->failed);
    if (json_read((char *)text->data, text->len, "the page", &j, &err) < 0)
        fail_msg("%s", err_text(&err));
    buf_fini(text);
    return j;
}

static json_t *jobs_of(const struct driver *d)
{
    struct buf text = {0};
    page_put_jobs(d, &text);
    return read_back(&text);
}

static json_t *job_of(const struct driver *d, const char *name)
{
    struct buf text = {0};
    const struct hvdjob *job = driver_job(d, "ml", name);
    assert_non_null(job);
    page_put_job(d, NULL, job, &text);
    return read_back(&text);
}

static json_int_t number(json_t *j, const char *name)
{
    return json_integer_value(json_object_get(j, name));
}

static const char *text_of(json_t *j, const char *name)
{
    return json_string_value(json_object_get(j, name));
}

/* ---- the JSON ---------------------------------------------------------------------------------
 */

static void test_jobs(void **state)
{
    struct driver *d = new_driver();
    (void)state;
    auto_json json_t *none = jobs_of(d);
    assert_int_equal(number(none, "total"), 0);
    assert_int_equal(json_array_size(json_object_get(none, "jobs")), 0);
    add_job(d, 1, JOB_SUCCEEDED, "done");
    add_job(d, 2, JOB_QUEUED, "</script>\"\\\x01 \xc3\xa4 \xff");
    add_job(d, 3, JOB_RUNNING, "")->job->job.ours = false; /* another controller's */
    auto_json json_t *j = jobs_of(d);
    assert_int_equal(number(j, "total"), 2);
    assert_int_equal(number(json_object_get(j, "phases"), "Queued"), 1);
    json_t *first = json_array_get(json_object_get(j, "jobs"), 0);
    assert_string_equal(text_of(first, "name"), "job-2"); /* unfinished jobs come first */
    assert_string_equal(text_of(first, "message"), "</script>\"\\\x01 ?? ?");
    free_driver(d);
}

static void test_text_is_cut_between_letters(void **state)
{
    (void)state;
    auto_json json_t *cut = page_text("abc\xc3\xa4xyz", 4);
    assert_string_equal(json_string_value(cut), "abc");
    auto_json json_t *whole = page_text("abc\xc3\xa4xyz", 5);
    assert_string_equal(json_string_value(whole), "abc\xc3\xa4");
    auto_json json_t *nothing = page_text(NULL, 5);
    assert_string_equal(json_string_value(nothing), "");
    auto_json json_t *odd = page_text("\x80\x80\x80", 2);
    assert_non_null(odd);
}

/* Workers with problems come first. */
static void test_members(void **state)
{
    struct driver *d = new_driver();
    struct entry *e = add_job(d, 1, JOB_RUNNING, "3 of 5 workers run");
    (void)state;
    add_pod(e, 0, POD_RUNNING);
    add_pod(e, 1, POD_FAILED);
    add_pod(e, 2, POD_PENDING);
    struct pod *stuck = add_pod(e, 3, POD_PENDING);
    stuck->why = strdup("ErrImagePull: <b>");
    add_pod(e, 4, POD_RUNNING)->deleting = true;
    auto_json json_t *j = job_of(d, "job-1");
    json_t *members = json_object_get(j, "members"), *list = json_object_get(members, "list");
    static const struct {
        int worker;
        const char *level, *state;
    } want[] = {{3, "bad", "pod starts"},
                {2, "busy", "pod starts"},
                {4, "busy", "is being deleted"},
                {0, "ok", "runs"},
                {1, "past", "has failed"}};
    assert_int_equal(json_array_size(list), 5);
    for (size_t i = 0; i < 5; i++) {
        json_t *one = json_array_get(list, i);
        assert_int_equal(number(one, "worker"), want[i].worker);
        assert_string_equal(text_of(one, "level"), want[i].level);
        assert_string_equal(text_of(one, "state"), want[i].state);
    }
    assert_string_equal(text_of(json_array_get(list, 0), "why"), "ErrImagePull: <b>");
    assert_true(json_is_null(json_object_get(j, "roster")));
    free_driver(d);
}

/* A worker that trains, with a broken set. */
static void test_broken_set(void **state)
{
    struct driver *d = new_driver();
    struct entry *e = add_job(d, 1, JOB_RUNNING, "");
    struct pod *fine = add_pod(e, 0, POD_RUNNING), *broken = add_pod(e, 1, POD_RUNNING);
    struct plane_worker workers[2] = {{.state = "active", .connected = true, .sets = 1},
                                      {.state = "active",
                                       .connected = true,
                                       .sets = 2,
                                       .segments = 4096,
                                       .memory_left = 5,
                                       .memory_limit = 6,
                                       .communicators = 3,
                                       .gpu_memory_left = 7,
                                       .gpu_memory = 8,
                                       .broken = 1,
                                       .broken_since = 1234,
                                       .broken_set = "set 3 has lost 1 of its 2 ranks"}};
    const struct plane_view view = {.nworkers = 2, .workers = workers};
    (void)state;
    snprintf(workers[0].pod_uid, sizeof(workers[0].pod_uid), "%s", fine->uid);
    snprintf(workers[1].pod_uid, sizeof(workers[1].pod_uid), "%s", broken->uid);
    auto_json json_t *j = page_members(d, &view, &e->job->job);
    json_t *list = json_object_get(j, "list"), *first = json_array_get(list, 0),
           *second = json_array_get(list, 1);
    assert_int_equal(number(j, "bad"), 1);
    assert_int_equal(number(first, "worker"), 1);
    assert_string_equal(text_of(first, "state"), "a set is broken");
    assert_string_equal(text_of(first, "brokenSet"), "set 3 has lost 1 of its 2 ranks");
    assert_true(number(first, "broken") == 1 && number(first, "brokenSince") == 1234);
    assert_true(number(first, "segments") == 4096 && number(first, "memoryLimit") == 6);
    assert_true(number(first, "communicators") == 3 && number(first, "gpuMemoryLeft") == 7);
    assert_int_equal(number(first, "gpuMemory"), 8);
    assert_string_equal(text_of(second, "state"), "trains");
    assert_null(json_object_get(second, "broken"));
    free_driver(d);
}

/* Without agents: the findings in the status. */
static void test_written_findings(void **state)
{
    struct driver *d = new_driver();
    struct entry *e = add_job(d, 1, JOB_FAILED, "");
    struct job_finding one = {.failure = true, .id = "shm-size", .code = "HVD3001"};
    (void)state;
    snprintf(one.pods[0], sizeof(one.pods[0]), "job-1-0-0");
    assert_int_equal(job_findings_add(&e->job->job.status.findings, &one), 0);
    snprintf(one.pods[0], sizeof(one.pods[0]), "job-1-1-0");
    assert_int_equal(job_findings_add(&e->job->job.status.findings, &one), 0);
    auto_json json_t *j = job_of(d, "job-1");
    json_t *findings = json_object_get(j, "findings"), *list = json_object_get(findings, "list");
    assert_int_equal(number(findings, "failures"), 1);
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(text_of(json_array_get(list, 0), "pod"), "job-1-0-0 and 1 more");
    assert_string_equal(text_of(json_array_get(list, 0), "id"), "shm-size");
    free_driver(d);
}

/* ---- limits -----------------------------------------------------------------------------------
 */

static void test_thousands(void **state)
{
    struct driver *d = new_driver();
    struct buf text = {0};
    char message[300];
    (void)state;
    memset(message, 'x', sizeof(message) - 1);
    message[sizeof(message) - 1] = '\0';
    for (int i = 0; i < 3000; i++)
        add_job(d, i, i < 1500 ? JOB_SUCCEEDED : JOB_RUNNING, message);
    page_put_jobs(d, &text);
    assert_in_range(text.len, 0, PAGE_JOBS_MAX * 700);
    auto_json json_t *j = read_back(&text);
    json_t *list = json_object_get(j, "jobs");
    assert_int_equal(number(j, "total"), 3000);
    assert_int_equal(json_array_size(list), PAGE_JOBS_MAX);
    for (size_t i = 0; i < 1500; i++)
        assert_string_equal(text_of(json_array_get(list, i), "phase"), "Running");
    free_driver(d);
}

static void test_ten_thousand_pods(void **state)
{
    struct driver *d = new_driver();
    struct entry *e = add_job(d, 1, JOB_RUNNING, "");
    struct buf text = {0};
    (void)state;
    for (int i = 0; i < 10000; i++)
        add_pod(e, i, POD_RUNNING)->ready = i % 1000 != 999;
    page_put_job(d, NULL, &e->job->job, &text);
    assert_in_range(text.len, 0, PAGE_MEMBERS_MAX * 400);
    auto_json json_t *j = read_back(&text);
    json_t *members = json_object_get(j, "members"), *list = json_object_get(members, "list");
    assert_int_equal(number(members, "total"), 10000);
    assert_int_equal(number(members, "busy"), 10);
    assert_int_equal(json_array_size(list), PAGE_MEMBERS_MAX);
    assert_int_equal(number(json_array_get(list, 9), "worker"), 9999);
    assert_int_equal(number(json_array_get(list, 10), "worker"), 0);
    free_driver(d);
}

static struct plane_mirror *no_plane(void *arg)
{
    (void)arg;
    return NULL;
}

static struct page *new_page(const struct driver *d, enum page_access access)
{
    const struct page_config config = {.driver = d, .plane = no_plane, .access = access};
    struct page *page;
    assert_int_equal(page_open(&page, &config, NULL), 0);
    return page;
}

static int ask(struct page *page, const char *path, bool local, const char *host,
               struct web_body **ret)
{
    const struct web_request request = {.path = path, .host = host, .etag = "", .local = local};
    struct web_answer a = {0};
    page_answer(page, &request, &a);
    assert_non_null(a.body);
    if (ret)
        *ret = a.body;
    else
        web_body_unref(a.body);
    return a.status;
}

static void test_access(void **state)
{
    struct driver *d = new_driver();
    static const struct {
        enum page_access access;
        bool local;
        const char *host;
        int status;
    } cases[] = {{PAGE_LOCAL, true, "localhost:80", 200}, {PAGE_LOCAL, false, "localhost:80", 403},
                 {PAGE_LOCAL, true, "evil.example", 403}, {PAGE_LOCAL, true, "", 403},
                 {PAGE_ALL, false, "page.example", 200},  {PAGE_OFF, true, "localhost", 404}};
    (void)state;
    add_job(d, 1, JOB_RUNNING, "");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct page *page = new_page(d, cases[i].access);
        static const char *const paths[] = {"/", "/v1/jobs", "/v1/jobs/ml/job-1"};
        for (int k = 0; k < 3; k++)
            assert_int_equal(ask(page, paths[k], cases[i].local, cases[i].host, NULL),
                             cases[i].status);
        page_close(page);
    }
    free_driver(d);
}

/* All clients get the same response for a second. */
static void test_kept(void **state)
{
    struct driver *d = new_driver();
    struct page *page = new_page(d, PAGE_ALL);
    struct web_body *one, *two;
    (void)state;
    assert_int_equal(ask(page, "/v1/jobs", true, "", &one), 200);
    add_job(d, 1, JOB_RUNNING, "");
    assert_int_equal(ask(page, "/v1/jobs", true, "", &two), 200);
    assert_ptr_equal(one, two);
    web_body_unref(two);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 50000000}, NULL);
    assert_int_equal(ask(page, "/v1/jobs", true, "", &two), 200);
    assert_ptr_not_equal(one, two);
    assert_string_not_equal(one->etag, two->etag);
    web_body_unref(one);
    web_body_unref(two);
    assert_int_equal(ask(page, "/v1/jobs/ml/none", true, "", NULL), 404);
    page_close(page);
    free_driver(d);
}

/* Many different requests get at most a tenth of the time, and slow clients at most 16 MB. */
static void test_busy(void **state)
{
    struct driver *d = new_driver();
    struct web_body *held[4000];
    int given = 0, busy = 0;
    char path[64];
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct entry *e = add_job(d, i, JOB_RUNNING, "");
        for (int k = 0; k < 500; k++)
            add_pod(e, k, POD_RUNNING);
    }
    struct page *page = new_page(d, PAGE_ALL);
    uint64_t begin = clock_ns();
    while (clock_ns() - begin < CLOCK_S && given < 4000) {
        snprintf(path, sizeof(path), "/v1/jobs/ml/job-%d", (given + busy) % 100);
        if (ask(page, path, true, "", &held[given]) == 200)
            given++;
        else
            web_body_unref(held[given]), busy++;
    }
    assert_true(given > 0);
    assert_true(busy > given);
    for (int i = 0; i < given; i++)
        web_body_unref(held[i]);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
    assert_int_equal(ask(page, "/v1/jobs", true, "", NULL), 200);
    page_close(page);
    free_driver(d);
}

/* ---- no memory --------------------------------------------------------------------------------
 */

static struct driver *walked;

/* The response is complete, or it is an error. */
static int write_all(void)
{
    struct buf text = {0};
    json_t *j = NULL;
    page_put_jobs(walked, &text);
    page_put_job(walked, NULL, driver_job(walked, "ml", "job-1"), &text);
    bool failed = text.failed;
    long fail_at = fail_alloc.fail_at;
    fail_alloc.fail_at = -1; /* the test's own parsing must not fail */
    char *end = failed ? NULL : memmem(text.data, text.len, "}{", 2);
    if (end &&
        json_read((char *)text.data, (size_t)(end + 1 - (char *)text.data), "", &j, NULL) == 0)
        json_decref(j);
    fail_alloc.fail_at = fail_at;
    buf_fini(&text);
    return failed ? -ENOMEM : j ? 0 : -EBADMSG;
}

static void test_no_memory(void **state)
{
    (void)state;
    walked = new_driver();
    struct entry *e = add_job(walked, 1, JOB_RUNNING, "x");
    add_job(walked, 2, JOB_SUCCEEDED, "y");
    add_pod(e, 0, POD_RUNNING);
    add_pod(e, 1, POD_PENDING);
    assert_int_equal(fail_alloc_walk("page", write_all), 0);
    free_driver(walked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_text_is_cut_between_letters),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_broken_set),
        cmocka_unit_test(test_written_findings),
        cmocka_unit_test(test_thousands),
        cmocka_unit_test(test_ten_thousand_pods),
        cmocka_unit_test(test_access),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_no_memory),
    };
    if (!FAIL_ALLOC)
        printf("SKIP: operator/page/memory: no sanitizer: it has its own malloc\n");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
