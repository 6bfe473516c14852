/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/saved_job, the state file that one hvdrun writes and another reads (hvdrun
 * attach): all fields are read back. A file that is cut, of another version, writable by other
 * users or of another machine is refused with a message. A full disk does not change the previous
 * file.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/jobs.h"
#include "agent/saved_job.h"
#include "core/base/cleanup.h"
#include "core/base/fd.h"

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/hvd-test-keep-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    jobs_remove(dir);
    return access(dir, F_OK) == 0 ? -1 : 0;
}

/* Returns a job with every field set. Its strings are static. */
static struct saved_job example(void)
{
    static char *argv[] = {(char *)"python3", (char *)"caf\xe9.py", NULL};
    static char *env[] = {(char *)"A=1", NULL};
    static char *environment[] = {(char *)"HVD_IFACE=eth1", (char *)"PYTHONPATH=", NULL};
    static struct host hosts[] = {{.name = "localhost", .slots = 2, .nranks = 2, .local = true},
                                  {.name = "h\xf6st", .slots = 3, .nranks = 1}};
    static struct saved_job_agent agents[] = {{"agent-0-aa", 2, 2, false, false},
                                              {"agent-1-bb", 1, 3, true, true}};
    static int leaving[] = {3, 5};
    struct saved_job k = {.host = "node1",
                          .home = "machine pid",
                          .environment = environment,
                          .term = 2,
                          .change = 7,
                          .target = 3,
                          .nmembers = 6,
                          .restarts = 1,
                          .nleaving = 2,
                          .leaving = leaving,
                          .first_hosts = 2,
                          .nagents = 2,
                          .agents = agents,
                          .nservers = 1};
    k.job = (struct job){.name = (char *)"digits",
                         .np = 3,
                         .elastic = true,
                         .min_np = 2,
                         .max_np = 5,
                         .keep_places = true,
                         .elastic_timeout = 60,
                         .reset_limit = 9,
                         .cooldown_min = 10,
                         .cooldown_max = 100,
                         .discovery_script = (char *)"/opt/hosts",
                         .slots_per_host = 4,
                         .hosts = {hosts, 2},
                         .argv = argv,
                         .env = env,
                         .cwd = (char *)"/data",
                         .start_timeout = 30,
                         .no_prefix = true,
                         .stamps = true,
                         .verbose = 2,
                         .ssh_port = 2222};
    k.servers[0] = (struct saved_job_server){.address = "10.0.0.1", .port = 4711};
    k.servers[0].authority = (struct authority){(char *)"ca", (char *)"cert", (char *)"key"};
    return k;
}

static void check_job(const struct job *a, const struct job *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->discovery_script, b->discovery_script);
    assert_string_equal(a->cwd, b->cwd);
    assert_string_equal(a->argv[1], b->argv[1]);
    assert_null(a->argv[2]);
    assert_string_equal(a->env[0], b->env[0]);
    assert_null(a->output_dir);
    assert_true(a->elastic && a->no_prefix && a->stamps && a->keep_places);
    const int want[] = {
        b->np,           b->min_np,       b->max_np,         b->elastic_timeout, b->reset_limit,
        b->cooldown_min, b->cooldown_max, b->slots_per_host, b->start_timeout,   b->verbose,
        b->ssh_port};
    const int have[] = {
        a->np,           a->min_np,       a->max_np,         a->elastic_timeout, a->reset_limit,
        a->cooldown_min, a->cooldown_max, a->slots_per_host, a->start_timeout,   a->verbose,
        a->ssh_port};
    assert_memory_equal(have, want, sizeof(want));
    assert_int_equal(a->hosts.n, 2);
    assert_string_equal(a->hosts.list[1].name, b->hosts.list[1].name);
    assert_int_equal(a->hosts.list[1].slots, 3);
    assert_true(a->hosts.list[0].local && !a->hosts.list[1].local);
}

static void test_round_trip(void **state)
{
    struct saved_job k = example(), back;
    struct err err = {0};
    (void)state;
    assert_int_equal(saved_job_store(&k, dir, NULL), 0);
    if (saved_job_load(&back, dir, &err) < 0)
        fail_msg("%s", err.msg);
    check_job(&back.job, &k.job);
    assert_string_equal(back.host, "node1");
    assert_string_equal(back.home, "machine pid");
    assert_string_equal(back.environment[0], "HVD_IFACE=eth1");
    assert_string_equal(back.environment[1], "PYTHONPATH=");
    assert_null(back.environment[2]);
    const int have[] = {(int)back.term,  (int)back.change, back.target,
                        back.nmembers,   back.restarts,    back.nleaving,
                        back.leaving[1], back.first_hosts, back.nagents};
    const int want[] = {2, 7, 3, 6, 1, 2, 5, 2, 2};
    assert_memory_equal(have, want, sizeof(want));
    assert_string_equal(back.agents[1].uid, "agent-1-bb");
    assert_int_equal(back.agents[1].room, 3);
    assert_true(back.agents[1].gone && back.agents[1].draining && !back.agents[0].gone);
    assert_string_equal(back.servers[0].address, "10.0.0.1");
    assert_int_equal(back.servers[0].port, 4711);
    assert_string_equal(back.servers[0].authority.key_pem, "key");
    saved_job_fini(&back);
}

/* A text that is cut anywhere is refused. A text with a changed byte is refused or read, without
 * a crash. */
static void test_torn(void **state)
{
    struct saved_job k = example(), back;
    struct err err;
    (void)state;
    auto_free char *text = saved_job_write(&k);
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        err = (struct err){0};
        assert_int_equal(saved_job_read(text, i, &back, &err), -EINVAL);
        assert_true(err.msg[0]);
    }
    for (size_t i = 0; i < n; i++) {
        const char bytes[] = {'\0', '9', '"', '-', '\xff'};
        char was = text[i];
        text[i] = bytes[i % sizeof(bytes)];
        if (saved_job_read(text, n, &back, NULL) == 0)
            saved_job_fini(&back);
        text[i] = was;
    }
    assert_int_equal(saved_job_read(text, n, &back, NULL), 0);
    saved_job_fini(&back);
}

static void write_state(const char *text, mode_t mode)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/state", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void refused(int code, const char *words)
{
    struct saved_job back;
    struct err err = {0};
    assert_int_equal(saved_job_load(&back, dir, &err), -code);
    if (!strstr(err.msg, words))
        fail_msg("the error lacks \"%s\": \"%s\"", words, err.msg);
}

static void test_version(void **state)
{
    struct saved_job k = example();
    char want[64], fresh[64];
    (void)state;
    auto_free char *text = saved_job_write(&k);
    snprintf(want, sizeof(want), "\"version\":%d", SAVED_JOB_VERSION);
    snprintf(fresh, sizeof(fresh), "\"version\":%d", SAVED_JOB_VERSION + 1);
    char *at = strstr(text, want);
    assert_non_null(at);
    memcpy(at, fresh, strlen(want));
    write_state(text, 0600);
    refused(ENOTSUP,
            "begun by another version of hvdrun (its state is of version 3, this one reads 2)");
    write_state("{}", 0600);
    refused(ENOTSUP, "version 0");
    write_state("", 0600);
    refused(EINVAL, "/state: ");
}

/* hvdrun runs the programs that the state names, so no other user may have been able to write
 * it. */
static void test_owner(void **state)
{
    struct saved_job k = example();
    char path[128], link_to[128];
    (void)state;
    refused(ENOENT, "/state: ");
    auto_free char *text = saved_job_write(&k);
    write_state(text, 0620);
    refused(EPERM, "of mode 0620: it is not used");
    write_state(text, 0600);
    chmod(dir, 0777);
    refused(EPERM, "of mode 0777: it is not used");
    chmod(dir, 0700);
    snprintf(path, sizeof(path), "%s/state", dir);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        refused(EPERM, "it is user 65534's");
    }
    snprintf(link_to, sizeof(link_to), "%s/job", dir);
    assert_int_equal(rename(path, link_to), 0);
    assert_int_equal(symlink(link_to, path), 0);
    refused(EPERM, "it is not used");
}

/* Called in a child, where no file may grow beyond 100 bytes. */
static int store_on_full_disk(const struct saved_job *k)
{
    struct rlimit limit = {100, 100};
    struct err err = {0};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
        return 2;
    return saved_job_store(k, dir, &err) == -EFBIG && strstr(err.msg, "/state: ") ? 0 : 3;
}

static void test_full_disk(void **state)
{
    struct saved_job k = example(), back;
    char path[128];
    int status;
    (void)state;
    assert_int_equal(saved_job_store(&k, dir, NULL), 0);
    k.target = 4;
    pid_t pid = fork();
    if (pid == 0)
        _exit(store_on_full_disk(&k));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    snprintf(path, sizeof(path), "%s/state.new", dir);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(saved_job_load(&back, dir, NULL), 0);
    assert_int_equal(back.target, 3);
    saved_job_fini(&back);
}

static void test_home(void **state)
{
    struct saved_job k = example();
    struct err err = {0};
    (void)state;
    saved_job_home(k.home);
    assert_int_equal(saved_job_check_home(&k, &err), 0);
    snprintf(k.home, sizeof(k.home), "elsewhere");
    assert_int_equal(saved_job_check_home(&k, &err), -EXDEV);
    assert_non_null(strstr(err.msg, "ran on host node1, which is of another machine or container"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test(test_torn),
        cmocka_unit_test_setup_teardown(test_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test(test_home),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
