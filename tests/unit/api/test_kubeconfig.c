/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/kubeconfig, incluster and access: lists of files, relative paths, inline
 * data, plugins, a pod's service account, what is refused.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "operator/api/incluster.h"
#include "operator/api/kubeconfig.h"

static char dir[64];

static const char *put(const char *name, const char *text)
{
    static char path[160];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static const char one[] = "apiVersion: v1\n"
                          "kind: Config\n"
                          "current-context: work\n"
                          "clusters:\n"
                          "- name: c1\n"
                          "  cluster:\n"
                          "    server: https://10.0.0.1:6443/\n"
                          "    certificate-authority: pki/ca.crt\n"
                          "    tls-server-name: kubernetes\n"
                          "    proxy-url: http://proxy:3128\n"
                          "contexts:\n"
                          "- {name: work, context: {cluster: c1, user: me, namespace: team}}\n"
                          "users:\n"
                          "- name: me\n"
                          "  user:\n"
                          "    tokenFile: token\n"
                          "    client-certificate-data: Q0VSVA==\n"
                          "    client-key-data: S0VZ\n";

static void test_one_file(void **state)
{
    struct access a = {0};
    struct err err = {0};
    char want[200];
    (void)state;
    assert_int_equal(kubeconfig_load(put("one", one), false, NULL, &a, &err), 0);
    assert_string_equal(a.server, "https://10.0.0.1:6443");
    snprintf(want, sizeof(want), "%s/pki/ca.crt", dir);
    assert_string_equal(a.ca_file, want);
    snprintf(want, sizeof(want), "%s/token", dir);
    assert_string_equal(a.token_file, want);
    assert_string_equal(a.tls_server_name, "kubernetes");
    assert_string_equal(a.proxy_url, "http://proxy:3128");
    assert_string_equal(a.cert_pem, "CERT");
    assert_string_equal(a.key_pem, "KEY");
    assert_string_equal(a.namespace, "team");
    assert_null(a.exec.argv);
    access_fini(&a);
    assert_null(a.server);
}

/* The first file with the name is used; missing files are skipped; paths are relative to their
 * file. */
static void test_list(void **state)
{
    char list[512], sub[96];
    struct access a = {0};
    struct err err = {0};
    (void)state;
    snprintf(sub, sizeof(sub), "%s/sub", dir);
    assert_int_equal(mkdir(sub, 0700), 0);
    put("one", one);
    put("sub/two",
        "current-context: other\n"
        "clusters: [{name: c1, cluster: {server: 'https://wrong'}},\n"
        "  {name: c2, cluster: {server: 'https://[fd00::1]:6443', certificate-authority: "
        "ca.crt}}]\n"
        "contexts: [{name: other, context: {cluster: c2, user: two}}]\n"
        "users: [{name: two, user: {token: abc}}]\n");
    snprintf(list, sizeof(list), "%s/none::%s/sub/two:%s/one", dir, dir, dir);
    assert_int_equal(kubeconfig_load(list, true, NULL, &a, &err), 0);
    assert_string_equal(a.server, "https://[fd00::1]:6443");
    assert_string_equal(a.token, "abc");
    snprintf(sub, sizeof(sub), "%s/sub/ca.crt", dir);
    assert_string_equal(a.ca_file, sub);
    access_fini(&a);
    assert_int_equal(kubeconfig_load(list, true, "work", &a, &err), 0);
    assert_string_equal(a.server, "https://wrong"); /* c1 of the first file */
    access_fini(&a);
    snprintf(list, sizeof(list), "%s/none:%s/nor-this", dir, dir);
    assert_int_equal(kubeconfig_load(list, true, NULL, &a, &err), -ENOENT);
    snprintf(list, sizeof(list), "%s/none", dir);
    assert_int_equal(kubeconfig_load(list, false, NULL, &a, &err), -ENOENT);
}

static void test_exec(void **state)
{
    struct access a = {0};
    struct err err = {0};
    char want[128];
    (void)state;
    const char *path = put("exec", "current-context: x\n"
                                   "clusters: [{name: c, cluster: {server: 'https://h', "
                                   "insecure-skip-tls-verify: true}}]\n"
                                   "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
                                   "users:\n"
                                   "- name: u\n"
                                   "  user:\n"
                                   "    exec:\n"
                                   "      apiVersion: client.authentication.k8s.io/v1\n"
                                   "      command: ./plug in; rm -rf\n"
                                   "      args: [get-token, --cluster, 'a b', '$(id)']\n"
                                   "      env: [{name: REGION, value: 'x y'}]\n"
                                   "      installHint: get it somewhere\n"
                                   "      provideClusterInfo: true\n");
    assert_int_equal(kubeconfig_load(path, false, NULL, &a, &err), 0);
    snprintf(want, sizeof(want), "%s/./plug in; rm -rf", dir);
    assert_string_equal(a.exec.argv[0], want);
    assert_string_equal(a.exec.argv[1], "get-token");
    assert_string_equal(a.exec.argv[3], "a b");
    assert_string_equal(a.exec.argv[4], "$(id)");
    assert_null(a.exec.argv[5]);
    assert_string_equal(a.exec.env[0], "REGION=x y");
    assert_null(a.exec.env[1]);
    assert_true(a.exec.cluster_info);
    assert_true(a.insecure);
    access_fini(&a);
}

static void test_refused(void **state)
{
#define HEAD                                                                                       \
    "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"                  \
    "clusters: [{name: c, cluster: {server: 'https://h'}}]\n"
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "current-context"},
        {"a: [", "bad:"},
        {"current-context: x\n", "no context named x"},
        {"current-context: x\ncontexts: [{name: x, context: {user: u}}]\n", "no cluster"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n",
         "no cluster named c"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
         "clusters: [{name: c, cluster: {server: 'ftp://h'}}]\n",
         "want server"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
         "clusters: [{name: c, cluster: {server: \"https://h\\r\\nX: y\"}}]\n",
         "line break"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
         "clusters: [{name: c, cluster: {server: 'https://h', insecure-skip-tls-verify: true, "
         "certificate-authority: x}}]\n",
         "exclude"},
        {HEAD, "no user named u"},
        {HEAD "users: [{name: u, user: {token: \"a\\nb\"}}]\n", "line break"},
        {HEAD "users: [{name: u, user: {client-certificate: a}}]\n", "needs its key"},
        {HEAD "users: [{name: u, user: {client-key-data: '*'}}]\n", "base64"},
        {HEAD "users: [{name: u, user: {client-key-data: 'AAAA'}}]\n", "base64 of a text"},
        {HEAD "users: [{name: u, user: {auth-provider: {name: gcp}}}]\n", "auth-provider"},
        {HEAD "users: [{name: u, user: {exec: {command: a}}}]\n", "apiVersion"},
        {HEAD "users: [{name: u, user: {exec: {command: a, apiVersion: v, args: [[a]]}}}]\n",
         "args"},
        {HEAD "users: [{name: u, user: {exec: {command: a, apiVersion: v, env: [{name: 'A=B', "
              "value: c}]}}}]\n",
         "env"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct access a = {0};
        struct err err = {0};
        int rc = kubeconfig_load(put("bad", cases[i].text), false, NULL, &a, &err);
        if (rc >= 0 || !strstr(err.msg, cases[i].why))
            fail_msg("case %zu: %d %s", i, rc, err.msg);
        assert_null(a.server);
    }
}

static void test_incluster(void **state)
{
    struct access a = {0};
    struct err err = {0};
    char root[80], path[256];
    (void)state;
    unsetenv("KUBERNETES_SERVICE_HOST");
    snprintf(root, sizeof(root), "%s/", dir);
    assert_false(incluster_here(root));
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "6443", 1);
    assert_false(incluster_here(root));
    assert_int_equal(incluster_load(root, &a, &err), -ENOENT);
    snprintf(path, sizeof(path), "mkdir -p %s/var/run/secrets/kubernetes.io/serviceaccount", dir);
    assert_int_equal(system(path), 0);
    put("var/run/secrets/kubernetes.io/serviceaccount/token", "abc");
    put("var/run/secrets/kubernetes.io/serviceaccount/namespace", "hvd-system\n");
    assert_true(incluster_here(root));
    assert_int_equal(incluster_load(root, &a, &err), -ENOENT); /* no CA file */
    put("var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "CA");
    assert_int_equal(incluster_load(root, &a, &err), 0);
    assert_string_equal(a.server, "https://[fd00::1]:6443");
    assert_string_equal(a.namespace, "hvd-system");
    assert_non_null(strstr(a.token_file, "/serviceaccount/token"));
    access_fini(&a);
    setenv("KUBERNETES_SERVICE_PORT", "http", 1);
    assert_true(incluster_load(root, &a, &err) < 0);
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/hvd-kubeconfig-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_file), cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_exec), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_incluster)};
    return cmocka_run_group_tests_name("api/kubeconfig", tests, make_dir, remove_dir);
}
