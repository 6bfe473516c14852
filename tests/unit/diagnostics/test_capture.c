/* SPDX-License-Identifier: Apache-2.0
 *
 * test_capture: a machine with the links of a /sys is read, captured, written into a folder and
 * read again: apart from secrets the contents are the same. Archives, files that cannot be written,
 * and failures that must leave no partial output.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"
#include "diagnostics/cli/capture.h"
#include "diagnostics/cli/save.h"
#include "diagnostics/cli/tar.h"

static char top[64];

static void make(const char *path, const char *text)
{
    char full[1024];
    snprintf(full, sizeof(full), "%s/%s", top, path);
    for (char *slash = strchr(full + strlen(top) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    unlink(full); /* not through a symbolic link */
    auto_close int fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void make_link(const char *path, const char *target)
{
    char full[1024];
    snprintf(full, sizeof(full), "%s/%s", top, path);
    assert_int_equal(symlink(target, full), 0);
}

static void make_machine(void)
{
    make("m/root/proc/meminfo", "MemTotal: 1 kB\n");
    make("m/root/proc/self/environ", "");
    make("m/root/sys/devices/pci/net/eth0/mtu", "1500\n");
    make("m/root/sys/devices/pci/vendor", "0x10de\n");
    make("m/root/sys/class/net/bonding", "not a link\n");
    make_link("m/root/sys/class/net/eth0", "../../devices/pci/net/eth0");
    make_link("m/root/sys/devices/pci/net/eth0/device", "../../../pci");
    make_link("m/root/sys/class/net/dangling", "nowhere");
    make("m/root/etc/config", "password=verysecret user=x\n");
    make("m/root/etc/folder/unseen", "nobody looks at this\n");
    make("m/answers/nvml", "state ok 0\ndriver 550.1\nenv TOKEN=abcdefgh\n");
    make("m/answers/cuda", "state timeout 10000\n");
}

/* Reads as checks do. The same machine gives the same text. */
static void look(const struct machine *m, struct buf *seen)
{
    static const char *const files[] = {
        "proc/meminfo", "sys/class/net/eth0/mtu", "sys/class/net/eth0/device/vendor",
        "proc/none",    "sys/class/net/eth0",     "etc/config"};
    static const char *const folders[] = {"sys/class/net", "etc", "etc/none"};
    static const char *const links[] = {"sys/class/net/eth0", "sys/class/net/eth0/device",
                                        "sys/class/net/dangling", "sys/class/net/bonding"};
    char line[512];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        auto_free char *text = NULL;
        int rc = machine_read(m, files[i], &text, NULL);
        snprintf(line, sizeof(line), "%s %d %s\n", files[i], rc, text ? text : "");
        buf_put(seen, line, strlen(line));
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        auto_free char **names = NULL;
        int rc = machine_list(m, folders[i], &names, NULL);
        snprintf(line, sizeof(line), "%s %d\n", folders[i], rc);
        buf_put(seen, line, strlen(line));
        for (size_t k = 0; rc == 0 && names[k]; k++) {
            buf_put(seen, names[k], strlen(names[k]));
            buf_put(seen, "\n", 1);
        }
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        char target[256];
        int rc = machine_readlink(m, links[i], target, sizeof(target));
        snprintf(line, sizeof(line), "%s %d %s\n", links[i], rc, target);
        buf_put(seen, line, strlen(line));
    }
    snprintf(line, sizeof(line), "%d %d %d\n", machine_exists(m, "etc/folder"),
             machine_exists(m, "dev/nvidia0"), machine_exists(m, "sys/class/net/dangling"));
    buf_put(seen, line, strlen(line));
}

static void open_machine(struct machine *m, const char *name)
{
    char dir[256];
    struct err err = {0};
    snprintf(dir, sizeof(dir), "%s/%s", top, name);
    if (machine_open_captured(m, dir, &err) < 0)
        fail_msg("%s", err.msg);
}

static char *slurp(const char *path)
{
    char full[1024], *text = NULL;
    snprintf(full, sizeof(full), "%s/%s", top, path);
    if (fd_read_file(full, 1 << 20, &text, NULL) < 0)
        return NULL;
    return text;
}

/* Captures machine m: the entries are in c, and what look() read is in seen. */
static void capture(struct machine *m, struct redact **redact, struct capture *c, struct buf *seen)
{
    struct setting s = {.profiles = PROFILE_GPU | PROFILE_K8S,
                        .local_ranks = 4,
                        .ranks = 8,
                        .gpus = 4,
                        .level = 1,
                        .interfaces = "eth0"};
    struct err err = {0};
    open_machine(m, "m");
    free(m->environ_text);
    m->environ_len = sizeof("A=1\0SOME_TOKEN=0123456789");
    m->environ_text = malloc(m->environ_len);
    memcpy(m->environ_text, "A=1\0SOME_TOKEN=0123456789", m->environ_len);
    assert_int_equal(redact_create(redact, m), 0);
    capture_start(c, m, *redact);
    look(m, seen);
    look(m, seen); /* a path that is read twice is captured once */
    if (capture_files(c, &s, &err) < 0)
        fail_msg("%s", err.msg);
    assert_null(m->record);
    buf_reset(seen);
    look(m, seen);
}

static void test_again(void **state)
{
    struct machine m, again;
    struct redact *redact;
    struct capture c;
    struct buf before = {0}, after = {0};
    struct err err = {0};
    char dir[128];
    capture(&m, &redact, &c, &before);
    snprintf(dir, sizeof(dir), "%s/copy/", top);
    if (save_folder(dir, &c, &err) < 0)
        fail_msg("%s", err.msg);
    open_machine(&again, "copy");
    look(&again, &after);
    redact_buf(redact, &before, 0);
    buf_put_u8(&before, 0);
    buf_put_u8(&after, 0);
    assert_string_equal((char *)after.data, (char *)before.data);
    assert_non_null(strstr((char *)after.data, "password=<redacted> user=x"));
    assert_string_equal(machine_env(&again, "A"), "1");
    assert_string_equal(machine_env(&again, "SOME_TOKEN"), REDACTED);
    assert_string_equal(answer_str(machine_answer(&again, "nvml"), "driver", ""), "550.1");
    assert_string_equal(answer_str(machine_answer(&again, "nvml"), "env", ""), "TOKEN=" REDACTED);
    assert_int_equal(machine_answer(&again, "cuda")->state, ANSWER_TIMEOUT);
    assert_int_equal(machine_answer(&again, "cuda")->detail, 10000);
    auto_free char *options = slurp("copy/options");
    assert_string_equal(options, "--profile=gpu,k8s\n--local-ranks=4\n--level=1\n--ranks=8\n"
                                 "--gpus=4\n--network-interfaces=eth0\n");
    assert_null(slurp("copy/root/etc/folder/unseen"));
    assert_int_equal(save_folder(dir, &c, &err), -ENOTEMPTY); /* the folder exists by now */
    machine_close(&again);
    machine_close(&m);
    capture_fini(&c);
    redact_destroy(redact);
    buf_fini(&before);
    buf_fini(&after);
}

/* A folder comes before its contents, no path twice, none outside. */
static void test_entries(void **state)
{
    struct machine m;
    struct redact *redact;
    struct capture c;
    struct buf seen = {0};
    capture(&m, &redact, &c, &seen);
    for (size_t i = 0; i < c.n; i++) {
        const char *path = c.entries[i].path;
        assert_true(path[0] != '/' && !strstr(path, ".."));
        assert_true(strncmp(path, "root", 4) == 0 || strncmp(path, "answers/", 8) == 0 ||
                    strcmp(path, "options") == 0);
        for (size_t k = 0; k < i; k++) {
            size_t n = strlen(path);
            assert_string_not_equal(c.entries[k].path, path);
            assert_false(strncmp(c.entries[k].path, path, n) == 0 && c.entries[k].path[n] == '/');
        }
    }
    machine_close(&m);
    capture_fini(&c);
    redact_destroy(redact);
    buf_fini(&seen);
}

static size_t files_in(const char *dir)
{
    struct machine m = {.root = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    auto_free char **names = NULL;
    size_t n = 0;
    machine_list(&m, dir, &names, &n);
    close(m.root);
    return n;
}

static void test_save_file(void **state)
{
    struct buf b = {0};
    struct err err = {0};
    char path[128];
    struct stat st;
    buf_put(&b, "text", 4);
    snprintf(path, sizeof(path), "%s/out", top);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/out/file", top);
    assert_int_equal(save_file(path, &b, &err), 0);
    assert_int_equal(save_file(path, &b, &err), 0); /* replaces the older file */
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(files_in("out"), 1);
    assert_int_equal(save_file("/dev/full", &b, &err), -ENOSPC);
    assert_string_equal(err.msg, "/dev/full: No space left on device");
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    snprintf(path, sizeof(path), "%s/none/file", top);
    assert_int_equal(save_file(path, &b, &err), -ENOENT);
    snprintf(path, sizeof(path), "%s/out", top);
    assert_int_equal(save_file(path, &b, &err), -EISDIR);
    b.failed = true;
    snprintf(path, sizeof(path), "%s/out/second", top);
    assert_int_equal(save_file(path, &b, &err), -ENOMEM);
    assert_int_equal(files_in("out"), 1);
    buf_fini(&b);
}

/* If a folder cannot be written completely, nothing of it stays. */
static void test_save_folder(void **state)
{
    static char endless[300];
    struct captured bad[] = {{.path = (char *)"a/b", .kind = 'f', .bytes = (char *)"x", .len = 1},
                             {.path = endless, .kind = 'f'}};
    struct capture c = {.entries = bad, .n = 2};
    struct err err = {0};
    char path[128];
    memset(endless, 'x', sizeof(endless) - 1);
    snprintf(path, sizeof(path), "%s/whole", top);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/whole/dir", top);
    assert_int_equal(save_folder(path, &c, &err), -ENAMETOOLONG);
    assert_int_equal(files_in("whole"), 0);
    c.n = 1;
    assert_int_equal(save_folder(path, &c, &err), 0);
    assert_int_equal(files_in("whole"), 1);
}

/* A captured machine is foreign input: a link that leads out of it finds nothing there. */
static void test_inside(void **state)
{
    struct machine m;
    char outside[256];
    auto_free char *text = NULL;
    make("evil/root/proc/x", "x");
    make("evil/root/inside", "inside\n");
    make("secret", "secret\n");
    snprintf(outside, sizeof(outside), "%s/secret", top);
    make_link("evil/root/absolute", outside);
    make_link("evil/root/relative", "../../secret");
    make_link("evil/root/good", "/inside");
    open_machine(&m, "evil");
    if (syscall(SYS_openat2, -1, "", NULL, 0) < 0 && errno == ENOSYS) {
        printf("SKIP: diagnostics/capture/inside: openat2: %s\n", strerror(errno));
        machine_close(&m);
        skip();
    }
    assert_int_equal(machine_read(&m, "absolute", &text, NULL), -ENOENT);
    assert_int_equal(machine_read(&m, "relative", &text, NULL), -ENOENT);
    assert_int_equal(machine_read(&m, "good", &text, NULL), 0);
    assert_string_equal(text, "inside\n");
    machine_close(&m);
}

/* ---- tar ------------------------------------------------------------------------------------ */

static void test_tar(void **state)
{
    struct buf out = {0};
    char name[200], full[256], command[512];
    memset(name, 'n', sizeof(name) - 1);
    name[150] = '/';
    name[199] = '\0';
    tar_put(&out, 'd', "dir/", NULL, 0, 1700000000);
    tar_put(&out, 'f', "dir/empty", "", 0, 1700000000);
    tar_put(&out, 'f', "dir/block", name, 199, 1700000000);
    tar_put(&out, 'f', name, "long name\n", 10, 1700000000);
    tar_put(&out, 'l', "dir/link", name, strlen(name), 1700000000);
    tar_end(&out);
    assert_false(out.failed);
    assert_int_equal(out.len % 512, 0);
    snprintf(full, sizeof(full), "%s/t.tar", top);
    struct err err = {0};
    assert_int_equal(save_file(full, &out, &err), 0);
    snprintf(command, sizeof(command), "mkdir %s/t && tar -C %s/t -xf %s/t.tar 2>&1", top, top,
             top);
    if (system("tar --version >/dev/null 2>&1") == 0) {
        assert_int_equal(system(command), 0);
        snprintf(command, sizeof(command), "t/%s", name);
        auto_free char *text = slurp(command), *block = slurp("t/dir/block");
        assert_string_equal(text, "long name\n");
        assert_memory_equal(block, name, 199);
        snprintf(full, sizeof(full), "%s/t/dir/link", top);
        char target[300] = "";
        assert_int_equal(readlink(full, target, sizeof(target) - 1), (ssize_t)strlen(name));
        assert_string_equal(target, name);
    }
    buf_fini(&out);
}

/* ---- setup ---------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int setup(void **state)
{
    snprintf(top, sizeof(top), "/tmp/hvd-test-capture-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    make_machine();
    return 0;
}

static int teardown(void **state)
{
    return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again),     cmocka_unit_test(test_entries),
        cmocka_unit_test(test_save_file), cmocka_unit_test(test_save_folder),
        cmocka_unit_test(test_tar),       cmocka_unit_test(test_inside),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
