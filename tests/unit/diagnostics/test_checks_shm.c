/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_shm: /dev/shm as Docker, pods and hosts have it, on captured machines; the probes on
 * a folder of this test.
 */
#include "tests/unit/diagnostics/checkup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "diagnostics/probe.h"
#include "diagnostics/probes/shm.h"

/* Sets the probe's answer: bytes in total and free, and the errno of a trial allocation. */
static void set_shm(const char *total, const char *left, const char *alloc)
{
    char text[256];
    snprintf(text, sizeof(text),
             "total %s\nfree %s\nunlimited 0\ntype tmpfs\nmode 1777\nwritable 1\nreadonly 0\n"
             "alloc_bytes 16777216\nalloc %s\n",
             total, left, alloc);
    checkup_answer("shm", text);
}

#define MIB_64 "67108864"
#define GIB_1  "1073741824"
#define GIB_32 "34359738368"

static void test_size(void **state)
{
    checkup_new();
    checkup_expect("shm-size", CHECK_SKIP, "not asked");
    set_shm(GIB_32, GIB_32, "0");
    checkup_expect("shm-size", CHECK_PASS, "/dev/shm has 32 GiB");
    set_shm(GIB_1, GIB_1, "0");
    checkup_expect("shm-size", CHECK_PASS, "/dev/shm has 1 GiB");
    set_shm("536870912", "536870912", "0");
    checkup_expect("shm-size", CHECK_WARN, "512 MiB, less than 1 GiB");
    set_shm(MIB_64, MIB_64, "0");
    checkup_expect("shm-size", CHECK_WARN, "64 MiB, Docker's default");
    set_shm("65536000", "65536000", "0");
    checkup_expect("shm-size", CHECK_WARN, "62.5 MiB, podman's default");
    set_shm(MIB_64, MIB_64, "0");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("shm-size", CHECK_FAIL, "64 MiB, Docker's default");
    assert_string_equal(checkup.result.observed, MIB_64);
    assert_int_equal(checkup.result.action, ACTION_CONTAINER_OPTION);
    checkup.setting.gpus = 1;
    checkup_expect("shm-size", CHECK_WARN, "64 MiB");
    checkup_answer("shm", "total 0\nfree 0\nunlimited 1\ntype tmpfs\n");
    checkup_expect("shm-size", CHECK_PASS, "no limit");
    checkup_answer("shm", "state failed 2\n");
    checkup_expect("shm-size", CHECK_FAIL, "there is no /dev/shm");
    checkup_answer("shm", "total lots\n");
    checkup_expect("shm-size", CHECK_SKIP, "not known");
    checkup.setting.profiles = PROFILE_LAUNCHER;
    checkup_expect("shm-size", CHECK_SKIP, "only with --profile cpu or gpu");
}

static void test_left(void **state)
{
    checkup_new();
    set_shm(GIB_32, "10485760", "0");
    checkup_expect("shm-free", CHECK_WARN, "only 10 MiB of 32 GiB");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("shm-free", CHECK_FAIL, "only 10 MiB of 32 GiB");
    set_shm(MIB_64, MIB_64, "0");
    checkup_expect("shm-free", CHECK_INFO, "see shm-size");
    set_shm(GIB_32, "104857600", "0");
    checkup_expect("shm-free", CHECK_PASS, "100 MiB of 32 GiB free");
    checkup.setting.local_ranks = 8;
    checkup_expect("shm-free", CHECK_WARN, "8 ranks with 2 channels takes about 160 MiB");
    checkup_answer("ranks", "rank.0.pid 1\nrank.1.pid 2\nrank.2.pid 3\nrank.3.pid 4\n"
                            "rank.4.pid 5\nrank.5.pid 6\nrank.6.pid 7\nrank.7.pid 8\n");
    checkup_expect("shm-free", CHECK_PASS,
                   "100 MiB"); /* the ranks run already and have their segments */
    checkup_answer("ranks", "");
    checkup_env("NCCL_MIN_NCHANNELS", "32");
    checkup_expect("shm-free", CHECK_WARN, "32 channels takes about 2.5 GiB");
    checkup_env("NCCL_MAX_NCHANNELS", "1");
    checkup_expect("shm-free", CHECK_PASS, "100 MiB");
}

static void test_fallocate(void **state)
{
    checkup_new();
    set_shm(GIB_32, GIB_32, "0");
    checkup_expect("shm-fallocate", CHECK_PASS, "16 MiB in /dev/shm allocated");
    set_shm(GIB_32, "0", "28");
    checkup_expect("shm-fallocate", CHECK_FAIL, "no space left");
    set_shm(GIB_32, GIB_32, "13");
    checkup_expect("shm-fallocate", CHECK_FAIL, "Permission denied");
    checkup_answer("shm", "state crashed 7\n");
    checkup_expect("shm-fallocate", CHECK_FAIL, "SIGBUS");
    checkup_answer("shm", "state timeout 10000\n");
    checkup_expect("shm-fallocate", CHECK_WARN, "timed out");
    checkup_answer("shm",
                   "total 1\nfree 1\nalloc_bytes 16777216\nuntried the memory limit leaves 3 "
                   "MiB\n");
    checkup_expect("shm-fallocate", CHECK_SKIP, "the memory limit leaves 3 MiB");
}

#define TYPED(type, mode, writable, readonly)                                                      \
    "total 1\nfree 1\ntype " type "\nmode " mode "\nwritable " writable "\nreadonly " readonly "\n"

static void test_type(void **state)
{
    checkup_new();
    checkup_answer("shm", TYPED("tmpfs", "1777", "1", "0"));
    checkup_expect("shm-fstype-perm", CHECK_PASS, "tmpfs with mode 1777");
    checkup_answer("shm", TYPED("overlay", "1777", "1", "0"));
    checkup_expect("shm-fstype-perm", CHECK_WARN, "is overlay, not memory");
    checkup_answer("shm", TYPED("tmpfs", "0755", "1", "0"));
    checkup_expect("shm-fstype-perm", CHECK_WARN, "mode 0755");
    checkup_answer("shm", TYPED("tmpfs", "0755", "0", "0"));
    checkup_expect("shm-fstype-perm", CHECK_FAIL, "not writable");
    checkup_answer("shm", TYPED("tmpfs", "1777", "0", "1"));
    checkup_expect("shm-fstype-perm", CHECK_FAIL, "read-only");
}

static void test_stale(void **state)
{
    checkup_new();
    set_shm(GIB_1, GIB_1, "0");
    checkup_expect("shm-stale", CHECK_SKIP, "not asked");
    checkup_answer("shm-files", "files 3\nunknown 0\nstale_count 0\nstale_bytes 0\n");
    checkup_expect("shm-stale", CHECK_PASS, "among 3 files");
    checkup_answer("shm-files", "stale.0.name nccl-abc\nstale.0.bytes 9637888\nfiles 3\n"
                                "stale_count 1\nstale_bytes 9637888\n");
    checkup_expect("shm-stale", CHECK_INFO, "1 segment of ended jobs, 9.2 MiB: nccl-abc");
    checkup_answer("shm-files", "stale.0.name nccl-abc\nstale.1.name torch_1\nfiles 3\n"
                                "stale_count 2\nstale_bytes 209637888\n");
    checkup_expect("shm-stale", CHECK_WARN, "2 segments of ended jobs hold 200 MiB");
    checkup_answer("shm-files", "files 3\nunknown 2\nstale_count 0\nstale_bytes 0\n");
    checkup_expect("shm-stale", CHECK_SKIP, "run as root");
    checkup_answer("shm-files", "files 3\n");
    checkup_expect("shm-stale", CHECK_SKIP, "incomplete");
}

static void test_cgroup(void **state)
{
    checkup_new();
    set_shm(GIB_32, GIB_32, "0");
    checkup_expect("shm-vs-cgroup", CHECK_SKIP, "needs /sys/fs/cgroup");
    checkup_file("proc/self/cgroup", "0::/\n");
    checkup_file("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    checkup_file("sys/fs/cgroup/memory.max", "max\n");
    checkup_expect("shm-vs-cgroup", CHECK_PASS, "no memory limit");
    checkup_file("sys/fs/cgroup/memory.max", "17179869184\n");
    checkup_expect("shm-vs-cgroup", CHECK_WARN,
                   "may grow to 32 GiB, but the container's memory limit is "
                   "only 16 GiB");
    set_shm(GIB_1, GIB_1, "0");
    checkup_expect("shm-vs-cgroup", CHECK_PASS, "below the memory limit of 16 GiB");
    checkup_answer("shm", "total 0\nfree 0\nunlimited 1\n");
    checkup_expect("shm-vs-cgroup", CHECK_WARN, "any size");
}

static void test_removeipc(void **state)
{
    checkup_new();
    checkup_expect("removeipc", CHECK_PASS, "no systemd-logind");
    checkup_file("run/systemd/seats/seat0",
                 ""); /* a file of the image: systemd does not run there */
    checkup_expect("removeipc", CHECK_PASS, "no systemd-logind");
    checkup_file("run/systemd/system/x", "");
    checkup_file("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\n");
    checkup_expect("removeipc", CHECK_WARN, "when user 1000 logs out");
    checkup_file("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
    checkup_expect("removeipc", CHECK_WARN, "RemoveIPC=yes");
    checkup_file("etc/systemd/logind.conf", "[Login]\n RemoveIPC = no\n");
    checkup_expect("removeipc", CHECK_PASS, "RemoveIPC=no");
    checkup_file("etc/systemd/logind.conf.d/50-x.conf", "[Login]\nRemoveIPC=on\n");
    checkup_expect("removeipc", CHECK_WARN, "RemoveIPC=yes");
    checkup_file("etc/passwd", "root:x:0:0::/:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/sh\n");
    checkup_file("var/lib/systemd/linger/ann", "");
    checkup_expect("removeipc", CHECK_PASS, "lingers");
    checkup_file("proc/self/status", "Uid:\t0\t0\t0\t0\n");
    checkup_expect("removeipc", CHECK_PASS, "system user");
}

/* ---- the probes ---- */

static void read_answer(struct buf *out, struct answer *ret)
{
    answer_parse(ret, (const char *)out->data, out->len);
    buf_fini(out);
}

static int count_files(const char *dir)
{
    struct machine m;
    struct err err = {0};
    char **names = NULL;
    size_t n = 0;
    assert_int_equal(machine_open_live(&m, &err), 0);
    assert_int_equal(machine_list(&m, dir + 1, &names, &n), 0);
    free(names);
    machine_close(&m);
    return (int)n;
}

static void test_look(void **state)
{
    struct buf out = {0};
    struct answer a;
    char dir[600];
    checkup_new();
    snprintf(dir, sizeof(dir), "%s/root", checkup.dir);
    assert_int_equal(shm_look(&out, dir, UINT64_MAX), 0);
    read_answer(&out, &a);
    assert_true(answer_int(&a, "total", 0) > 0);
    assert_int_equal(answer_int(&a, "alloc", -1), 0);
    assert_int_equal(answer_int(&a, "writable", -1), 1);
    assert_string_equal(answer_str(&a, "mode", ""), "0700");
    answer_fini(&a);
    assert_int_equal(count_files(dir), 1); /* only "empty": the trial file is removed */
    assert_int_equal(shm_look(&out, dir, 1 << 20), 0);
    read_answer(&out, &a);
    assert_string_equal(answer_str(&a, "untried", ""), "the memory limit leaves 1 MiB");
    assert_false(answer_has(&a, "alloc"));
    answer_fini(&a);
    assert_int_equal(shm_look(&out, "/nonexistent", UINT64_MAX), -ENOENT);
    buf_fini(&out);
}

/* Of three segments one is mapped, one is open and one is unused. A fourth file is no segment. */
static void test_files(void **state)
{
    struct machine m;
    struct err err = {0};
    struct buf out = {0};
    struct answer a;
    char dir[600], real[600], path[700];
    checkup_new();
    checkup_file("nccl-mapped", "0123456789");
    checkup_file("torch_open", "0123456789");
    checkup_file("vader_segment.x", "0123456789");
    checkup_file("my-data", "0123456789");
    snprintf(dir, sizeof(dir), "%s/root", checkup.dir);
    assert_non_null(realpath(dir, real));
    snprintf(path, sizeof(path), "%s/nccl-mapped", real);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(mapped != MAP_FAILED);
    close(fd);
    snprintf(path, sizeof(path), "%s/torch_open", real);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(machine_open_live(&m, &err), 0);
    assert_int_equal(shm_files(&out, &m, real), 0);
    read_answer(&out, &a);
    machine_close(&m);
    munmap(mapped, 4096);
    close(fd);
    assert_int_equal(answer_int(&a, "files", -1), 5);
    assert_int_equal(answer_int(&a, "stale_count", -1) + answer_int(&a, "unknown", -1), 1);
    if (answer_int(&a, "unknown", 0) == 0) /* there were too many processes for the time limit */
        assert_string_equal(answer_str_at(&a, "stale", 0, "name", ""), "vader_segment.x");
    answer_fini(&a);
}

static void test_tables(void **state)
{
    checkup_texts(&checks_shm);
    checkup_all_seen(&checks_shm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size),  cmocka_unit_test(test_left),
        cmocka_unit_test(test_type),  cmocka_unit_test(test_fallocate),
        cmocka_unit_test(test_stale), cmocka_unit_test(test_cgroup),
        cmocka_unit_test(test_look),  cmocka_unit_test(test_removeipc),
        cmocka_unit_test(test_files), cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
