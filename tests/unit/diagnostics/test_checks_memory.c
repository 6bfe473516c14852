/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_memory: memory, swap, temporary files, disks and file servers, on captured machines;
 * the probes on folders of this test and on a mount that hangs.
 */
#include "tests/unit/diagnostics/checkup.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "diagnostics/probe.h"
#include "diagnostics/probes/storage.h"

static void test_available(void **state)
{
    checkup_new();
    checkup_expect("mem-available", CHECK_SKIP, "no MemAvailable");
    checkup_file("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n");
    checkup_expect("mem-available", CHECK_PASS, "32 GiB of the machine's 64 GiB");
    checkup.setting.local_ranks = 64;
    checkup_expect("mem-available", CHECK_WARN, "less than 1 GiB for each of 64 ranks");
    checkup.setting.local_ranks = 2;
    checkup_file("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 2000000 kB\n");
    checkup_expect("mem-available", CHECK_WARN, "less than 1 GiB for each of 2 ranks");
    checkup_answer(
        "ranks", "rank.0.pid 7\nrank.1.pid 8\n"); /* both ranks run already and have their memory */
    checkup_expect("mem-available", CHECK_PASS, "1.9 GiB");
    checkup_file("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 5368709 kB\n");
    checkup_expect("mem-available", CHECK_WARN, "(8 %)");
    checkup_file("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 200000 kB\n");
    checkup_expect("mem-available", CHECK_FAIL, "195 MiB");
    checkup_file("proc/meminfo", "MemTotal: 99999999999999999999 kB\nMemAvailable: -5 kB\n");
    checkup_expect("mem-available", CHECK_SKIP, "no MemAvailable");
}

static void test_swap(void **state)
{
    checkup_new();
    checkup_expect("swap-activity", CHECK_SKIP, "not asked");
    checkup_file("proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB\n");
    checkup_expect("swap-activity", CHECK_PASS, "no swap");
    checkup_file("proc/meminfo", "SwapTotal: 8388608 kB\nSwapFree: 8388608 kB\n");
    checkup_answer("vmstat", "ms 200\nswap_in 0\nswap_out 0\n");
    checkup_expect("swap-activity", CHECK_PASS, "no swapping within 200 ms, 0 B of 8 GiB");
    checkup_answer("vmstat", "ms 200\nswap_in 10\nswap_out 4000\n");
    checkup_expect("swap-activity", CHECK_WARN, "10 pages in, 4000 out within 200 ms");
    checkup_file("proc/meminfo", "SwapTotal: 8388608 kB\nSwapFree: 4194304 kB\n");
    checkup_answer("vmstat", "ms 200\nswap_in 0\nswap_out 0\n");
    checkup_expect("swap-activity", CHECK_INFO, "4 GiB of 8 GiB swap in use");
    checkup_answer("vmstat", "");
    checkup_expect("swap-activity", CHECK_SKIP, "does not count");
}

static void test_pages(void **state)
{
    checkup_new();
    checkup_expect("overcommit", CHECK_SKIP, "No such file");
    checkup_file("proc/sys/vm/overcommit_memory", "0\n");
    checkup_expect("overcommit", CHECK_PASS, "=0");
    checkup_file("proc/sys/vm/overcommit_memory", "2\n");
    checkup_file("proc/meminfo", "CommitLimit: 8388608 kB\nCommitted_AS: 4194304 kB\n");
    checkup_expect("overcommit", CHECK_WARN, "4 GiB of 8 GiB are reserved");

    checkup_expect("hugepages-free", CHECK_SKIP, "huge pages");
    checkup_file("proc/meminfo", "MemTotal: 8388608 kB\nHugePages_Total: 0\nHugePages_Free: 0\n"
                                 "Hugepagesize: 2048 kB\n");
    checkup_expect("hugepages-free", CHECK_PASS, "no huge pages");
    checkup_file("proc/meminfo", "MemTotal: 8388608 kB\nHugePages_Total: 512\nHugePages_Free: 500\n"
                                 "Hugepagesize: 2048 kB\n");
    checkup_expect("hugepages-free", CHECK_INFO,
                   "512 huge pages of 2 MiB are reserved (1 GiB), 500");
    checkup_file("proc/meminfo", "MemTotal: 8388608 kB\nHugePages_Total: 3000\n"
                                 "HugePages_Free: 3000\nHugepagesize: 2048 kB\n");
    checkup_expect("hugepages-free", CHECK_WARN, "more than half of memory");
}

static void test_tmpdir(void **state)
{
    checkup_new();
    checkup_expect("tmpdir-space", CHECK_SKIP, "not asked");
    checkup_answer("disk-tmp", "path /tmp\nreal /tmp\ntotal 100000000000\nfree 50000000000\n");
    checkup_expect("tmpdir-space", CHECK_PASS, "/tmp has 46.6 GiB left");
    checkup_answer("disk-tmp", "path /tmp\ntotal 100000000000\nfree 499999999\n");
    checkup_expect("tmpdir-space", CHECK_WARN, "less than 500 MB");
    checkup_answer("disk-tmp", "path /tmp\ntotal 100000000000\nfree 4096\n");
    checkup_expect("tmpdir-space", CHECK_FAIL, "/tmp has 4 KiB left");
    checkup_answer("disk-tmp", "path /scratch/me\nerrno 2\n");
    checkup_expect("tmpdir-space", CHECK_FAIL, "/scratch/me: No such file");
    checkup_answer("disk-tmp", "state timeout 5000\n");
    checkup_expect("tmpdir-space", CHECK_WARN, "timed out after 5000 ms");

    checkup_expect("tmpdir-path-len", CHECK_PASS, "4 characters");
    checkup_env("TMPDIR", "/scratch/projects/a-rather-long-name/users/somebody/tmp/job-1234567");
    checkup_expect("tmpdir-path-len", CHECK_WARN, "TMPDIR has 67 characters");
}

#define DISK(path, total, left, ro, w)                                                             \
    "path " path "\nreal " path "\ntotal " total "\nfree " left                                    \
    "\ninodes 1000000\ninodes_free 900000\nreadonly " ro "\nwritable " w "\n"

static void test_disk(void **state)
{
    checkup_new();
    checkup_expect("disk-space", CHECK_SKIP, "not asked");
    checkup_answer("disk-data", DISK("/data", "1000000000000", "400000000000", "0", "1"));
    checkup_expect("disk-space", CHECK_PASS, "/data has 373 GiB of 931 GiB left");
    checkup_answer("disk-data", DISK("/data", "1000000000000", "10000000000", "0", "1"));
    checkup_expect("disk-space", CHECK_WARN, "(1.0 %)");
    checkup_answer("disk-data", DISK("/data", "2000000000", "1000000000", "0", "1"));
    checkup_expect("disk-space", CHECK_WARN, "954 MiB");
    checkup_answer("disk-data", DISK("/data", "1000000000000", "50000000", "0", "1"));
    checkup_expect("disk-space", CHECK_FAIL, "47.7 MiB");
    checkup_answer("disk-data", "path /data\nreal /data\ntotal 1000000000000\nfree 400000000000\n"
                                "inodes 1000000\ninodes_free 500\n");
    checkup_expect("disk-space", CHECK_WARN, "room for only 500 more files");
    checkup_answer("disk-data", "path /nowhere\nerrno 2\n");
    checkup_expect("disk-space", CHECK_FAIL, "/nowhere: No such file");
    checkup_answer("disk-data", "path /proc\nreal /proc\ntotal 0\nfree 0\n");
    checkup_expect("disk-space", CHECK_SKIP, "does not tell");
}

static void test_readonly(void **state)
{
    checkup_new();
    checkup_expect("fs-readonly", CHECK_SKIP, "not asked");
    checkup_answer("disk-tmp", DISK("/tmp", "100", "50", "0", "1"));
    checkup_answer("disk-data", DISK("/data/x", "100", "50", "0", "1"));
    checkup_expect("fs-readonly", CHECK_PASS, "/tmp and /data/x are writable");
    checkup_file("proc/self/mountinfo", "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
                                        "28 27 8:0 / /data rw - ext4 /dev/sdb ro,errors=x\n");
    checkup_expect("fs-readonly", CHECK_FAIL, "the kernel made /dev/sdb read-only after an error");
    checkup_file("proc/self/mountinfo", "");
    checkup_answer("disk-data", DISK("/data/x", "100", "50", "1", "0"));
    checkup_expect("fs-readonly", CHECK_INFO, "/data/x is mounted read-only: checkpoints");
    checkup_expect("disk-space", CHECK_PASS, "no room needed");
    checkup_answer("disk-tmp", DISK("/tmp", "100", "50", "0", "0"));
    checkup_expect("fs-readonly", CHECK_FAIL, "/tmp is not writable for this user");
    checkup_answer("disk-tmp", "path /scratch\nerrno 2\n");
    checkup_expect("fs-readonly", CHECK_FAIL, "/scratch: No such file");
    checkup_answer("disk-tmp", "");
    checkup_expect("fs-readonly", CHECK_SKIP, "incomplete");
}

#define MOUNT(i, point, type, state, ms)                                                           \
    "mount." i ".point " point "\nmount." i ".type " type "\nmount." i ".source s\nmount." i       \
    ".state " state "\nmount." i ".ms " ms "\n"

static void test_hung(void **state)
{
    checkup_new();
    checkup_expect("fs-hung", CHECK_SKIP, "not asked");
    checkup_answer("mounts", "left 0\n");
    checkup_expect("fs-hung", CHECK_PASS, "no remote file system");
    checkup_answer("mounts", "left 0\n" MOUNT("0", "/nfs", "nfs4", "0", "3"));
    checkup_expect("fs-hung", CHECK_PASS, "1 remote file system answers");
    checkup_answer("mounts", "left 0\n" MOUNT("0", "/nfs", "nfs4", "0", "3")
                                 MOUNT("1", "/home", "nfs4", "0", "2100"));
    checkup_expect("fs-hung", CHECK_WARN, "/home (nfs4) 2100 ms");
    checkup_answer("mounts", "left 0\n" MOUNT("0", "/nfs", "nfs4", "hung", "5000")
                                 MOUNT("1", "/s3", "fuse.s3fs", "107", "1"));
    checkup_expect("fs-hung", CHECK_FAIL,
                   "/nfs (nfs4) does not answer for 5000 ms, /s3 "
                   "(fuse.s3fs): Transport endpoint is not connected");
    checkup_answer("mounts", "left 0\n" MOUNT("0", "/x", "fuse.x", "13",
                                              "1")); /* a mount of another user is not reported */
    checkup_expect("fs-hung", CHECK_PASS, "1 remote");
    checkup_answer("mounts", "");
    checkup_expect("fs-hung", CHECK_SKIP, "incomplete");
}

/* ---- the probes ---- */

static void test_look(void **state)
{
    struct buf out = {0};
    struct answer a;
    checkup_new();
    storage_look(&out, checkup.dir);
    answer_parse(&a, (const char *)out.data, out.len);
    assert_string_equal(answer_str(&a, "path", ""), checkup.dir);
    assert_true(answer_int(&a, "total", 0) > 0);
    assert_int_equal(answer_int(&a, "writable", 0), 1);
    answer_fini(&a);
    buf_reset(&out);
    storage_look(&out, "/nonexistent/folder");
    answer_parse(&a, (const char *)out.data, out.len);
    assert_int_equal(answer_int(&a, "errno", 0), ENOENT);
    answer_fini(&a);
    buf_fini(&out);
}

static bool any(const struct mount *m)
{
    return true;
}

/* Makes a FUSE mount in namespaces of its own, whose server never answers. Exits with 77 if the
 * kernel refuses that. */
static int hang_child(int out_fd)
{
    struct buf out = {0};
    char options[128], text[512], real[200];
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return 77;
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fuse, uid,
             gid);
    if (fuse < 0 || !realpath(checkup.dir, real) ||
        mount("silent", checkup.dir, "fuse.silent", MS_NOSUID | MS_NODEV, options) < 0)
        return 77;
    snprintf(text, sizeof(text),
             "1 0 0:1 / %.100s rw - fuse.silent silent rw\n2 1 0:2 / /proc rw - proc proc rw\n"
             "3 1 0:3 / /nonexistent rw - nfs4 s:/x rw\n",
             real);
    uint64_t start = clock_ns();
    storage_mounts(&out, text, any, 300);
    if (clock_ns() - start > 20 * CLOCK_S)
        return 2;
    int rc = fd_write_full(out_fd, out.data, out.len, deadline_in_ms(5000));
    buf_fini(&out);
    return rc < 0 ? 3 : 0;
}

static void test_mounts(void **state)
{
    struct answer a;
    char text[4096];
    int ends[2], status;
    checkup_new();
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(hang_child(ends[1]));
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n; (n = read(ends[0], text + len, sizeof(text) - len)) > 0;)
        len += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("SKIP: diagnostics/fs_hung: FUSE: no mount namespace or no /dev/fuse\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    answer_parse(&a, text, len);
    assert_int_equal(answer_count(&a, "mount"), 3);
    assert_string_equal(answer_str_at(&a, "mount", 0, "state", ""), "hung");
    assert_string_equal(answer_str_at(&a, "mount", 1, "state", ""), "0");
    assert_int_equal(answer_int_at(&a, "mount", 2, "state", -1), ENOENT);
    answer_fini(&a);
}

static void test_tables(void **state)
{
    checkup_texts(&checks_memory);
    checkup_texts(&checks_storage);
    checkup_all_seen(&checks_memory);
    checkup_all_seen(&checks_storage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_available), cmocka_unit_test(test_swap),
        cmocka_unit_test(test_pages),     cmocka_unit_test(test_tmpdir),
        cmocka_unit_test(test_disk),      cmocka_unit_test(test_readonly),
        cmocka_unit_test(test_hung),      cmocka_unit_test(test_look),
        cmocka_unit_test(test_mounts),    cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
