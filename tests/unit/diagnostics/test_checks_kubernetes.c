/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_kubernetes: a pod's name service, the Kubernetes API, permissions and GPUs, on
 * captured machines; the probe against a real HTTPS server in a child process, which answers as the
 * Kubernetes API does.
 *
 * takes: 5 s, waiting
 */
#include "tests/unit/diagnostics/checkup.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/json/json.h"
#include "core/member/authority.h"
#include "core/member/server.h"
#include "diagnostics/probe.h"

#define ACCOUNT "var/run/secrets/kubernetes.io/serviceaccount/"

static void pod(void)
{
    checkup_new();
    checkup.setting.profiles = PROFILE_CPU | PROFILE_K8S;
    checkup_env("KUBERNETES_SERVICE_HOST", "10.96.0.1");
}

static void test_outside(void **state)
{
    static const char *const ids[] = {"k8s-dns",           "k8s-search-ndots", "k8s-worker-dns",
                                      "k8s-api-reachable", "k8s-rbac",         "k8s-crd-version"};
    checkup_new();
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
        checkup_expect(ids[i], CHECK_SKIP, "only with --profile k8s");
    checkup.setting.profiles = PROFILE_GPU | PROFILE_K8S;
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
        checkup_expect(ids[i], CHECK_SKIP, "not in a pod");
    checkup_expect("k8s-gpu-alloc", CHECK_SKIP, "not in a pod");
}

#define RESOLV                                                                                     \
    "search train.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n"      \
    "options ndots:5\n"

static void test_dns(void **state)
{
    pod();
    checkup_expect("k8s-dns", CHECK_SKIP, "not asked");
    checkup_file("etc/resolv.conf", RESOLV);
    checkup_answer("k8s-dns", "name kubernetes.default.svc\nip 10.96.0.1\nms 3\n");
    checkup_expect("k8s-dns", CHECK_PASS, "kubernetes.default.svc is 10.96.0.1, 3 ms");
    checkup_answer("k8s-dns", "name kubernetes.default.svc\nip 10.96.0.1\nms 2500\n");
    checkup_expect("k8s-dns", CHECK_WARN, "took 2500 ms");
    checkup_answer("k8s-dns", "error Name or service not known\nms 3\n");
    checkup_expect("k8s-dns", CHECK_FAIL, "does not resolve: Name or service not known");
    checkup_answer("k8s-dns", "state timeout 4000\n");
    checkup_expect("k8s-dns", CHECK_WARN, "timed out after 4000 ms");
    checkup_answer("k8s-dns", "error Name or service not known\nms 3\n");
    checkup_file("etc/resolv.conf", "nameserver 192.168.1.1\nsearch example.org\n");
    checkup_expect("k8s-dns", CHECK_WARN, "asks the node's name servers");
}

static void test_ndots(void **state)
{
    static const struct {
        const char *text, *words;
        enum check_status want;
    } cases[] = {
        {RESOLV, "ndots:5 with 3 domains", CHECK_INFO},
        {"search a.svc.x svc.x x\nnameserver 1.1.1.1\noptions ndots:2 edns0\n",
         "ndots:2, 3 search domains", CHECK_PASS},
        {"search a b c d e f g\nnameserver 1.1.1.1\n", "7 search domains", CHECK_WARN},
        {"search a b c d e f g\nnameserver 1.1.1.1\nsearch a\n", "1 search domain", CHECK_PASS},
        {"nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4\n",
         "4 name servers", CHECK_WARN},
        {"search a\nnameserver 1.1.1.1\noptions timeout:2 ndots:15\n", "ndots:15", CHECK_WARN},
        {"# nothing\n", "no name server", CHECK_WARN},
        {"\xff\xfe\n  \n;x\nnameserver", "no name server", CHECK_WARN},
        {"", "no name server", CHECK_WARN},
    };
    pod();
    checkup_expect("k8s-search-ndots", CHECK_SKIP, "No such file");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        checkup_file("etc/resolv.conf", cases[i].text);
        checkup_expect("k8s-search-ndots", cases[i].want, cases[i].words);
    }
}

static void test_workers(void **state)
{
    pod();
    checkup_answer("workers", "tried_ms 0\n");
    checkup_expect("k8s-worker-dns", CHECK_SKIP, "no worker is named");
    checkup_answer("workers", "tried_ms 9\nname.0.name w-0.train\nname.0.ip 10.0.0.1\n"
                              "name.1.name w-1.train\nname.1.ip 10.0.0.2\n");
    checkup_expect("k8s-worker-dns", CHECK_PASS, "2 names of workers resolve");
    checkup_answer("workers", "tried_ms 5000\nname.0.name w-0.train\nname.0.ip 10.0.0.1\n"
                              "name.1.name w-1.train\nname.1.error Name or service not known\n");
    checkup_expect("k8s-worker-dns", CHECK_FAIL,
                   "1 of 2 names do not resolve after 5000 ms: w-1.train: Name or service");
    char many[4096] = "tried_ms 5000\n";
    for (int i = 0; i < 40; i++) {
        size_t len = strlen(many);
        snprintf(many + len, sizeof(many) - len, "name.%d.name w-%d.train\nname.%d.error no\n", i,
                 i, i);
    }
    checkup_answer("workers", many);
    checkup_expect("k8s-worker-dns", CHECK_FAIL, "40 of 40 names");
    assert_non_null(strstr(checkup.result.summary, "w-3.train, ...: no"));
}

static void test_api(void **state)
{
    pod();
    checkup_answer("kubernetes", "token No such file or directory\n");
    checkup_expect("k8s-api-reachable", CHECK_SKIP, "a job's pods need none");
    checkup_answer("kubernetes", "token ok\nurl https://10.96.0.1:443\nversion.status 200\n"
                                 "version.git v1.36.3\nversion.ms 7\n");
    checkup_expect("k8s-api-reachable", CHECK_PASS, "Kubernetes v1.36.3 at https://10.96.0.1:443");
    checkup_answer("kubernetes", "token ok\nurl https://10.96.0.1:443\nversion.status 403\n");
    checkup_expect("k8s-api-reachable", CHECK_INFO, "forbidden");
    checkup_answer("kubernetes", "token ok\nurl https://10.96.0.1:443\nversion.status 401\n");
    checkup_expect("k8s-api-reachable", CHECK_FAIL, "refuses the token (401)");
    checkup_expect("k8s-rbac", CHECK_SKIP, "see k8s-api-reachable");
    checkup_answer("kubernetes", "token ok\nurl https://10.96.0.1:443\nversion.status 503\n");
    checkup_expect("k8s-api-reachable", CHECK_WARN, "answers 503");
    checkup_answer("kubernetes", "token ok\nurl https://10.96.0.1:443\nversion.status 0\n"
                                 "version.text Connection timed out\n");
    checkup_expect("k8s-api-reachable", CHECK_WARN, "Connection timed out; a job's pods work");
    checkup_expect("k8s-crd-version", CHECK_SKIP, "see k8s-api-reachable");
    checkup.setting.profiles |= PROFILE_LAUNCHER;
    checkup_expect("k8s-api-reachable", CHECK_FAIL, "Connection timed out");
    checkup_answer("kubernetes", "");
    checkup_expect("k8s-api-reachable", CHECK_SKIP, "not looked for");
}

#define ANSWERED "token ok\nurl https://10.96.0.1:443\nnamespace train\nversion.status 200\n"
#define RIGHT(i, verb, resource, status, allowed)                                                  \
    "access." i ".verb " verb "\naccess." i ".resource " resource "\naccess." i ".status " status  \
    "\naccess." i ".allowed " allowed "\n"

static void test_rights(void **state)
{
    pod();
    checkup_answer("kubernetes", ANSWERED);
    checkup_expect("k8s-rbac", CHECK_SKIP, "no SelfSubjectAccessReview");
    checkup_answer("kubernetes", ANSWERED RIGHT("0", "list", "pods", "201", "1")
                                     RIGHT("1", "create", "pods", "201", "1"));
    checkup_expect("k8s-rbac", CHECK_PASS, "all 2 rights that hvd-operator needs, in namespace");
    checkup_answer("kubernetes", ANSWERED RIGHT("0", "list", "pods", "201", "1")
                                     RIGHT("1", "create", "pods", "201", "0"));
    checkup_expect("k8s-rbac", CHECK_INFO, "1 of 2 of the operator's rights");
    checkup.setting.profiles |= PROFILE_LAUNCHER;
    checkup_expect("k8s-rbac", CHECK_FAIL, "1 of 2 rights missing in namespace train: create pods");
    checkup_answer("kubernetes", ANSWERED RIGHT("0", "list", "pods", "201", "1")
                                     RIGHT("1", "create", "pods", "500", "0"));
    checkup_expect("k8s-rbac", CHECK_WARN, "1 of 2 access reviews got no answer");
    checkup_answer("kubernetes", ANSWERED RIGHT("0", "list", "pods", "403", "0"));
    checkup_expect("k8s-rbac", CHECK_SKIP, "no SelfSubjectAccessReview");
    checkup.setting.profiles = PROFILE_CPU | PROFILE_K8S;
    checkup_answer("kubernetes", ANSWERED RIGHT("0", "list", "pods", "201", "0"));
    checkup_expect("k8s-rbac", CHECK_PASS, "none of the operator's rights");
}

static void test_crd(void **state)
{
    pod();
    checkup_answer("kubernetes", ANSWERED "group.status 200\nserved.0.name v1alpha1\n");
    checkup_expect("k8s-crd-version", CHECK_PASS, "serves v1alpha1");
    checkup_answer("kubernetes", ANSWERED "group.status 200\nserved.0.name v2\n");
    checkup_expect("k8s-crd-version", CHECK_FAIL, "as v2, this build needs v1alpha1");
    checkup_answer("kubernetes", ANSWERED "group.status 404\n");
    checkup_expect("k8s-crd-version", CHECK_INFO, "not installed");
    checkup.setting.profiles |= PROFILE_LAUNCHER;
    checkup_expect("k8s-crd-version", CHECK_FAIL, "not installed");
    checkup_answer("kubernetes", ANSWERED "group.status 403\n");
    checkup_expect("k8s-crd-version", CHECK_SKIP, "answers 403");
}

static void test_gpus(void **state)
{
    pod();
    checkup.setting.profiles = PROFILE_GPU | PROFILE_K8S;
    checkup_expect("k8s-gpu-alloc", CHECK_FAIL, "NVIDIA_VISIBLE_DEVICES is not set");
    checkup.setting.gpus = 0;
    checkup_expect("k8s-gpu-alloc", CHECK_PASS, "the pod was given none");
    checkup.setting.gpus = -1;
    checkup_file("dev/nvidia0", "");
    checkup_file("dev/nvidia1", "");
    checkup_file("dev/nvidiactl", "");
    checkup_file("dev/nvidia-uvm", "");
    checkup_expect("k8s-gpu-alloc", CHECK_PASS, "2 GPUs");
    checkup.setting.gpus = 4;
    checkup_expect("k8s-gpu-alloc", CHECK_FAIL, "the job wants 4 GPUs here, the pod was given 2");
    checkup.setting.gpus = 1;
    checkup_expect("k8s-gpu-alloc", CHECK_WARN, "the pod sees 2");
    checkup.setting.gpus = -1;
    checkup_env("NVIDIA_VISIBLE_DEVICES", "GPU-aaaa,GPU-bbbb,GPU-cccc");
    checkup_expect("k8s-gpu-alloc", CHECK_FAIL, "3 GPUs were given, only 2");
    checkup_file("dev/nvidia2", "");
    checkup_expect("k8s-gpu-alloc", CHECK_PASS, "3 GPUs given by the device plugin");
    checkup_file("dev/nvidia7", "");
    checkup_expect("k8s-gpu-alloc", CHECK_WARN, "privileged?");
    pod();
    checkup.setting.profiles = PROFILE_GPU;
    checkup_env("NVIDIA_VISIBLE_DEVICES", "void");
    checkup_expect("k8s-gpu-alloc", CHECK_FAIL, "NVIDIA_VISIBLE_DEVICES is void");
}

/* ---- the probes that look names up ---- */

static void run_probe(const char *name, int timeout_ms, struct machine *ret)
{
    const struct probe *p = probe_find(name);
    struct setting s = {.level = 1, .timeout_ms = timeout_ms};
    struct err err = {0};
    assert_non_null(p);
    assert_int_equal(machine_open_captured(ret, checkup.dir, &err), 0);
    assert_int_equal(probe_run(ret, &p, 1, &s, &err), 0);
}

static const char *source_of(const struct answer *a, const char *name)
{
    for (int i = 0; i < answer_count(a, "name"); i++) {
        if (strcmp(answer_str_at(a, "name", i, "name", ""), name) == 0)
            return answer_str_at(a, "name", i, "source", "");
    }
    return "nobody";
}

/* The names of workers from all sources, each once. Addresses are left out. Whether the names
 * resolve depends on the network. */
static void test_worker_names(void **state)
{
    struct machine m;
    pod();
    checkup_env("HVD_RENDEZVOUS", "rank-0.invalid:4000");
    checkup_env("MASTER_ADDR", "localhost");
    checkup_env("OMPI_MCA_orte_default_hostfile", "/etc/hosts.mpi");
    checkup_env("TF_CONFIG",
                "{\"cluster\": {\"worker\": [\"tf-0.invalid:2222\", 7, \"10.0.0.3:2222\"],"
                " \"chief\": {}}, \"task\": 3}");
    checkup_file("etc/hosts.mpi", "# comment\nw-0.invalid slots=8\n  w-1.invalid:8\r\n\n[::1]\n"
                                  "10.0.0.2 slots=8\nw-0.invalid slots=8\nlocalhost");
    run_probe("workers", 3000, &m);
    const struct answer *a = machine_answer(&m, "workers");
    assert_int_equal(a->state, ANSWER_OK);
    assert_int_equal(answer_count(a, "name"), 5);
    assert_string_equal(source_of(a, "rank-0.invalid"), "HVD_RENDEZVOUS");
    assert_string_equal(source_of(a, "localhost"), "MASTER_ADDR");
    assert_string_equal(source_of(a, "w-0.invalid"), "hostfile");
    assert_string_equal(source_of(a, "w-1.invalid"), "hostfile");
    assert_string_equal(source_of(a, "tf-0.invalid"), "TF_CONFIG");
    bool unknown = false;
    for (int i = 0; i < 5; i++) {
        bool local = strcmp(answer_str_at(a, "name", i, "name", ""), "localhost") == 0;
        bool known = answer_str_at(a, "name", i, "ip", NULL) != NULL;
        assert_true(known || (!local && answer_str_at(a, "name", i, "error", NULL)));
        unknown |= !known;
    }
    /* The probe repeats its look-ups until the time is over. (Some networks resolve every name.) */
    assert_true(!unknown || answer_int(a, "tried_ms", 0) >= 400);
    machine_close(&m);
}

static void test_no_names(void **state)
{
    struct machine m;
    checkup_new();
    checkup_env("TF_CONFIG", "{");
    checkup_env("MASTER_ADDR", "[fd00::1]:29500");
    checkup_file("etc/mpi/hostfile", "\0\0");
    run_probe("workers", 20000, &m);
    assert_int_equal(machine_answer(&m, "workers")->state, ANSWER_OK);
    assert_int_equal(answer_count(machine_answer(&m, "workers"), "name"), 0);
    machine_close(&m);
    run_probe("k8s-dns", 20000, &m); /* outside a pod the probe looks nothing up */
    assert_int_equal(machine_answer(&m, "k8s-dns")->state, ANSWER_OK);
    assert_false(answer_has(machine_answer(&m, "k8s-dns"), "ms"));
    machine_close(&m);
    run_probe("kubernetes", 20000, &m);
    assert_int_equal(machine_answer(&m, "kubernetes")->state, ANSWER_OK);
    assert_false(answer_has(machine_answer(&m, "kubernetes"), "token"));
    machine_close(&m);
}

/* ---- the probe of the API against a server ---- */

/* as long as a real token */
static char token[1400];

static int handle(void *arg, const struct server_request *q, struct server_reply *ret_reply)
{
    auto_json json_t *review = NULL;
    const char *verb = "", *space = "", *resource = "";
    ret_reply->status = 200;
    if (strcmp(q->path, "/version") == 0) {
        ret_reply->body = strdup("{\"major\": \"1\", \"gitVersion\": \"v1.36.3\"}");
    } else if (strcmp(q->path, "/apis/hvd.dev") == 0) {
        ret_reply->body = strdup("{\"kind\": \"APIGroup\", \"versions\": [{\"groupVersion\": "
                                 "\"hvd.dev/v1alpha1\", \"version\": \"v1alpha1\"}]}");
    } else if (strcmp(q->method, "POST") == 0 &&
               json_read(q->body, q->len, "review", &review, NULL) == 0 &&
               json_unpack(review, "{s:{s:{s:s, s:s, s:s}}}", "spec", "resourceAttributes", "verb",
                           &verb, "namespace", &space, "resource", &resource) == 0 &&
               strcmp(space, "train") == 0) {
        ret_reply->status = 201;
        if (asprintf(&ret_reply->body, "{\"status\": {\"allowed\": %s, \"reason\": \"%s %s\"}}",
                     strcmp(verb, "delete") == 0 ? "false" : "true", verb, resource) < 0)
            ret_reply->body = NULL;
    } else {
        ret_reply->status = 404;
    }
    return 0;
}

/* Runs in the child: sends its port to the parent and serves until it is killed. */
static void serve(const struct authority *authority, int out)
{
    struct loop loop;
    struct server *server;
    struct err err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (loop_init(&loop) < 0)
        _exit(1);
    const struct server_config config = {.loop = &loop,
                                         .token = token,
                                         .handle = handle,
                                         .address = "127.0.0.1",
                                         .cert_pem = authority->cert_pem,
                                         .key_pem = authority->key_pem};
    if (server_open(&server, &config, &err) < 0)
        _exit(2);
    int port = server_port(server);
    if (write(out, &port, sizeof(port)) != sizeof(port))
        _exit(3);
    loop_run(&loop);
    _exit(0);
}

static pid_t start_server(const struct authority *authority, int *ret_port)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0)
        serve(authority, ends[1]);
    close(ends[1]);
    assert_int_equal(fd_read_full(ends[0], ret_port, sizeof(*ret_port), deadline_in_ms(10000)), 0);
    close(ends[0]);
    return pid;
}

static void stop_server(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Runs the probe against the server, and stores its answer in a captured machine, so that the
 * checks can run on it. */
static void ask_server(int port, const char *ca, const char *bearer, int timeout_ms)
{
    struct buf text = {0};
    struct machine m;
    char number[16];
    snprintf(number, sizeof(number), "%d", port);
    checkup_new();
    checkup.setting.profiles = PROFILE_LAUNCHER | PROFILE_K8S;
    checkup_env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    checkup_env("KUBERNETES_SERVICE_PORT", number);
    checkup_file(ACCOUNT "namespace", "train");
    if (ca)
        checkup_file(ACCOUNT "ca.crt", ca);
    if (bearer)
        checkup_file(ACCOUNT "token", bearer);
    run_probe("kubernetes", timeout_ms, &m);
    answer_write(machine_answer(&m, "kubernetes"), &text);
    buf_put_u8(&text, 0);
    assert_null(strstr((char *)text.data, "secret-")); /* the answer does not contain the token */
    checkup_answer("kubernetes", (char *)text.data);
    buf_fini(&text);
    machine_close(&m);
}

static void test_server(void **state)
{
    static const char *const addresses[] = {"127.0.0.1"};
    struct authority good, other;
    struct err err = {0};
    int port;
    memset(token, 'x', sizeof(token) - 1);
    memcpy(token, "secret-", 7);
    assert_int_equal(authority_create(&good, "test", addresses, 1, &err), 0);
    assert_int_equal(authority_create(&other, "test", addresses, 1, &err), 0);
    pid_t pid = start_server(&good, &port);

    ask_server(port, good.ca_pem, token, 20000);
    checkup_expect("k8s-api-reachable", CHECK_PASS, "Kubernetes v1.36.3 at https://127.0.0.1:");
    checkup_expect("k8s-crd-version", CHECK_PASS, "serves v1alpha1");
    checkup_expect("k8s-rbac", CHECK_FAIL,
                   "1 of 14 rights missing in namespace train: delete pods");

    ask_server(port, good.ca_pem, "secret-but-wrong", 20000);
    checkup_expect("k8s-api-reachable", CHECK_FAIL, "refuses the token (401)");
    checkup_expect("k8s-rbac", CHECK_SKIP, "gave no answer");
    ask_server(port, other.ca_pem, token, 20000);
    checkup_expect("k8s-api-reachable", CHECK_FAIL, "certificate");
    ask_server(port, "no certificate", token, 20000);
    checkup_expect("k8s-api-reachable", CHECK_FAIL, "https://127.0.0.1:");
    ask_server(port, NULL, token, 20000);
    checkup_expect("k8s-api-reachable", CHECK_FAIL, "ca.crt: No such file");
    ask_server(port, good.ca_pem, NULL, 20000);
    checkup_expect("k8s-api-reachable", CHECK_SKIP, "no service account token");
    ask_server(port, good.ca_pem, "", 20000);
    checkup_expect("k8s-api-reachable", CHECK_SKIP, "(empty)");

    kill(pid, SIGSTOP); /* the server accepts connections and never answers */
    ask_server(port, good.ca_pem, token, 8000);
    checkup_expect("k8s-api-reachable", CHECK_FAIL, "imed out");
    stop_server(pid);
    ask_server(port, good.ca_pem, token, 20000);
    checkup_expect("k8s-api-reachable", CHECK_FAIL, "https://127.0.0.1:");
    authority_fini(&good);
    authority_fini(&other);
}

static void test_tables(void **state)
{
    checkup_texts(&checks_k8s_dns);
    checkup_texts(&checks_kubernetes);
    checkup_all_seen(&checks_k8s_dns);
    checkup_all_seen(&checks_kubernetes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outside),      cmocka_unit_test(test_dns),
        cmocka_unit_test(test_ndots),        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_api),          cmocka_unit_test(test_rights),
        cmocka_unit_test(test_crd),          cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_worker_names), cmocka_unit_test(test_no_names),
        cmocka_unit_test(test_server),       cmocka_unit_test(test_tables), /* last */
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
