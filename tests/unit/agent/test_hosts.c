/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/hosts: lists, files, the assignment of ranks to hosts, and the inputs that are
 * refused.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "agent/hosts.h"
#include "core/transport/shm.h"

static void test_list(void **state)
{
    struct hosts h = {0};
    (void)state;
    assert_int_equal(hosts_parse(&h, "h1:2,h2,[fd00::1]:4,user@h3:1,h1:1", NULL), 0);
    assert_int_equal(h.n, 4);
    assert_string_equal(h.list[0].name, "h1");
    assert_int_equal(h.list[0].slots, 3);
    assert_int_equal(h.list[1].slots, 1);
    assert_string_equal(h.list[2].name, "fd00::1");
    assert_int_equal(h.list[2].slots, 4);
    assert_string_equal(h.list[3].name, "user@h3");
    hosts_fini(&h);
}

static void test_local_names_are_one(void **state)
{
    struct hosts h = {0};
    char own[256] = "", list[300];
    (void)state;
    gethostname(own, sizeof(own) - 1);
    snprintf(list, sizeof(list), "localhost:1,127.0.0.1:2,%s:3,[::1]:1", own);
    assert_int_equal(hosts_parse(&h, list, NULL), 0);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.list[0].slots, 7);
    hosts_fini(&h);
}

static void test_assign(void **state)
{
    struct hosts h = {0};
    struct err err;
    (void)state;
    assert_int_equal(hosts_assign(&h, 0, NULL), 0); /* no option given: one rank on this host */
    assert_int_equal(hosts_ranks(&h), 1);
    assert_true(h.list[0].local);
    assert_int_equal(hosts_parse(&h, "a:2,b:2,c:2", NULL), 0);
    assert_int_equal(hosts_assign(&h, 3, NULL), 0);
    assert_int_equal(h.n, 2);
    assert_int_equal(h.list[0].nranks, 2);
    assert_int_equal(h.list[1].nranks, 1);
    assert_int_equal(hosts_parse(&h, "a:2,b:2,c:2", NULL), 0);
    assert_int_equal(hosts_assign(&h, 0, NULL), 0);
    assert_int_equal(hosts_ranks(&h), 6);
    assert_int_equal(hosts_assign(&h, 7, &err), -EINVAL);
    assert_string_equal(err.msg, "7 ranks, but the hosts have 6 slots: add slots or lower -np");
    hosts_fini(&h);
}

static void test_refused(void **state)
{
    const char *bad[] = {"",       ",",      "a,,b",       "a:",    "a:0",
                         "a:-1",   "a:1x",   "a:99999999", "-oX:1", "a b:1",
                         "[::1:2", "[::1]2", "a;rm:1",     ":3",    "a,"};
    struct hosts h = {0};
    struct err err;
    (void)state;
    assert_int_equal(hosts_parse(&h, "keep:3", NULL), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (hosts_parse(&h, bad[i], &err) != -EINVAL)
            fail_msg("the invalid list \"%s\" was accepted", bad[i]);
        assert_true(strlen(err.msg) > 0);
        assert_string_equal(h.list[0].name, "keep"); /* a failed call does not change the list */
    }
    hosts_fini(&h);
}

static int read_text(struct hosts *h, const char *text, struct err *err)
{
    char path[] = "/tmp/hvd-test-hosts-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = hosts_read(h, path, err);
    unlink(path);
    return rc;
}

static void test_file(void **state)
{
    struct hosts h = {0};
    struct err err;
    (void)state;
    assert_int_equal(read_text(&h, "# two\nn1 slots=4\r\n\n  n2\tslots=2 # more\nn3:3\nn4", &err),
                     0);
    assert_int_equal(h.n, 4);
    assert_int_equal(h.list[0].slots, 4);
    assert_int_equal(h.list[2].slots, 3);
    assert_int_equal(h.list[3].slots, 1);
    assert_int_equal(read_text(&h, "n1 slots=4\nn2 slots=0\n", &err), -EINVAL);
    assert_non_null(strstr(err.msg, ":2: \"0\": want a number"));
    assert_int_equal(read_text(&h, "n1 slots=4 slots=5\n", &err), -EINVAL);
    assert_int_equal(read_text(&h, "n1 4\n", &err), -EINVAL);
    assert_non_null(strstr(err.msg, ":1: want \"host slots=N\""));
    assert_int_equal(read_text(&h, "# nothing\n", &err), -EINVAL);
    assert_int_equal(h.n, 4);
    hosts_fini(&h);
}

/* A host runs at most as many ranks as a segment has seats. */
static void test_too_many(void **state)
{
    struct hosts h = {0};
    struct err err;
    (void)state;
    assert_int_equal(HOST_RANKS_MAX, SHM_MAX_SEATS);
    assert_int_equal(hosts_assign(&h, HOST_RANKS_MAX, &err), 0);
    hosts_fini(&h);
    assert_int_equal(hosts_assign(&h, HOST_RANKS_MAX + 1, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "513 ranks do not fit: one host runs at most 512 ranks"));
    assert_non_null(strstr(err.msg, "host localhost was given 513 slots"));
    hosts_fini(&h);
    assert_int_equal(hosts_parse(&h, "a:600,b:2", &err), 0);
    assert_int_equal(hosts_assign(&h, 514, &err), 0); /* the other ranks go to the next host */
    assert_int_equal(h.list[0].nranks, 512);
    assert_int_equal(h.list[1].nranks, 2);
    assert_int_equal(hosts_assign(&h, 515, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "host a was given 600 slots, so that there is room for 514"));
    hosts_fini(&h);
    assert_int_equal(hosts_assign_elastic(&h, 4, 600, &err), 0);
    assert_int_equal(h.list[0].slots, 512);
    hosts_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),   cmocka_unit_test(test_local_names_are_one),
        cmocka_unit_test(test_assign), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_file),   cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
