/* SPDX-License-Identifier: Apache-2.0
 *
 * The printer shows an incomplete line if its rank adds nothing for a while. It does not while the
 * rank waits for a full output file: another rank's line would then stand between the two halves.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/printer.h"
#include "core/base/clock.h"

struct fixture {
    char dir[64];
    struct loop loop;
    struct printer printer;
    int fifo;        /* the output file of rank 0; no process reads it */
    int out, stdout; /* a file in place of standard output; a copy of the real one */
};

static void put(struct fixture *f, uint32_t rank, const char *data, size_t n)
{
    struct frame frame = {
        .rank = rank, .stream = FRAME_STDOUT, .data = (const uint8_t *)data, .len = (uint32_t)n};
    printer_put(&f->printer, &frame);
}

/* Returns what has been printed so far. */
static const char *printed(struct fixture *f)
{
    static char text[256];
    ssize_t n = pread(f->out, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static int setup(void **state)
{
    static struct fixture f;
    char path[128];
    struct err err;
    f = (struct fixture){.dir = "/tmp/hvd-printer-XXXXXX"};
    if (!mkdtemp(f.dir) || setenv("HVD_OUTPUT_BUFFER", "64K", 1) < 0 || loop_init(&f.loop) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/rank.0", f.dir);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/rank.0/stdout", f.dir);
    f.fifo = mkfifo(path, 0600) < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    snprintf(path, sizeof(path), "%s/out", f.dir);
    f.out = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    fflush(stdout);
    f.stdout = dup(STDOUT_FILENO);
    if (f.fifo < 0 || f.out < 0 || f.stdout < 0 || dup2(f.out, STDOUT_FILENO) < 0)
        return -1;
    *state = &f;
    return printer_init(&f.printer, &f.loop, 2, true, f.dir, false, NULL, NULL, &err);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char command[128];
    dup2(f->stdout, STDOUT_FILENO);
    close(f->stdout);
    close(f->fifo);
    close(f->out);
    printer_fini(&f->printer);
    loop_fini(&f->loop);
    snprintf(command, sizeof(command), "rm -r %s", f->dir);
    return system(command) == 0 ? 0 : -1; // NOLINT(cert-env33-c): the test's own directory
}

static void prompt(void **state)
{
    struct fixture *f = *state;
    uint64_t begin = clock_ns();
    put(f, 1, "name? ", 6);
    while (strcmp(printed(f), "[1]<stdout>:name? ") != 0 && clock_ns() < begin + 20 * CLOCK_S)
        loop_once(&f->loop, 100);
    assert_string_equal(printed(f), "[1]<stdout>:name? ");
}

static void stamps(void **state)
{
    struct fixture *f = *state;
    char day[8], month[8], rest[64];
    int date, hour, minute, second, year;
    f->printer.stamps = true;
    uint64_t begin = clock_ns();
    put(f, 1, "line\n", 5);
    while (!*printed(f) && clock_ns() < begin + 20 * CLOCK_S)
        loop_once(&f->loop, 100);
    const char *got = printed(f);
    int n = sscanf(got, "%7s %7s %d %d:%d:%d %d%63s", day, month, &date, &hour, &minute, &second,
                   &year, rest);
    if (n != 8 || year < 2026 || strcmp(rest, "[1]<stdout>:line") != 0)
        fail_msg("%d fields in: %s", n, got);
}

static void waiting_rank(void **state)
{
    struct fixture *f = *state;
    static char much[160 << 10]; /* fills the FIFO and the buffer */
    uint64_t begin = clock_ns();
    memset(much, 'x', sizeof(much));
    much[sizeof(much) - 1] = '\n';
    struct frame frame = {
        .stream = FRAME_STDOUT, .data = (const uint8_t *)much, .len = sizeof(much)};
    f->printer.streams[1][FRAME_STDOUT].file = -1; /* only the file of rank 0 is slow */
    f->printer.sinks[FRAME_STDOUT].failed =
        EPIPE; /* the lines of rank 0 do not reach standard output */
    printer_put(&f->printer, &frame);
    f->printer.sinks[FRAME_STDOUT].failed = 0;
    assert_true(printer_full(&f->printer));
    put(f, 1, "half", 4);
    while (f->printer.flow_timer.on && clock_ns() < begin + 20 * CLOCK_S) {
        loop_once(&f->loop, 100);
        if (f->printer.flow_timer.on)
            assert_string_equal(printed(f), "");
    }
    assert_false(f->printer.flow_timer
                     .on); /* the file has taken nothing for so long that ranks wait no longer */
    put(f, 1, " whole\n", 7);
    while (strlen(printed(f)) == 0 && clock_ns() < begin + 20 * CLOCK_S)
        loop_once(&f->loop, 100);
    assert_string_equal(printed(f), "[1]<stdout>:half whole\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(prompt, setup, teardown),
        cmocka_unit_test_setup_teardown(stamps, setup, teardown),
        cmocka_unit_test_setup_teardown(waiting_rank, setup, teardown),
    };
    return cmocka_run_group_tests_name("agent/printer", tests, NULL, NULL);
}
