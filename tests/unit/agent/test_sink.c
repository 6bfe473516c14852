/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue before an output: a sender that paused because the queue was full is told when it no
 * longer is, whether the loop or another write emptied it.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/outlet.h"
#include "agent/sink.h"

struct fixture {
    struct loop loop;
    struct sink sink;
    int in; /* the pipe's read end */
    int drained;
    char *data; /* MUCH bytes, more than SINK_FULL */
};

#define MUCH (SINK_FULL + (256u << 10))

static void on_drained(void *arg)
{
    struct fixture *f = arg;
    f->drained++;
}

static int setup(void **state)
{
    static struct fixture f;
    int ends[2];
    f = (struct fixture){.data = calloc(1, MUCH)};
    if (!f.data || pipe2(ends, O_CLOEXEC) < 0 || loop_init(&f.loop) < 0)
        return -1;
    f.in = ends[0];
    sink_init(&f.sink, &f.loop, ends[1], on_drained, &f);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    int fd = f->sink.fd;
    sink_fini(&f->sink);
    close(fd);
    if (f->in >= 0)
        close(f->in);
    loop_fini(&f->loop);
    free(f->data);
    return 0;
}

/* Reads at most n bytes from the pipe. */
static void take(struct fixture *f, size_t n)
{
    char *room = malloc(n);
    assert_non_null(room);
    assert_true(read(f->in, room, n) > 0);
    free(room);
}

static void test_drained_by_the_loop(void **state)
{
    struct fixture *f = *state;
    sink_write(&f->sink, f->data, MUCH);
    assert_true(sink_full(&f->sink));
    for (int i = 0; i < 1000 && sink_pending(&f->sink) > 0; i++) {
        take(f, 65536);
        assert_int_equal(loop_once(&f->loop, 1000), 0);
    }
    assert_int_equal(f->drained, 1);
}

/* A write empties the queue below its limit. Regression: the sender was not told, and the output
 * of two ranks hung. */
static void test_drained_by_a_write(void **state)
{
    struct fixture *f = *state;
    sink_write(&f->sink, f->data, MUCH);
    for (int i = 0; i < 1000 && sink_full(&f->sink); i++) {
        assert_int_equal(f->drained, 0);
        take(f, 65536);
        sink_write(&f->sink, f->data, 1);
    }
    assert_false(sink_full(&f->sink));
    assert_int_equal(f->drained, 1);
}

static void test_nobody_reads(void **state)
{
    struct fixture *f = *state;
    sink_write(&f->sink, f->data, MUCH);
    close(f->in);
    f->in = -1;
    assert_int_equal(loop_once(&f->loop, 1000), 0);
    assert_int_equal(sink_pending(&f->sink), 0);
    assert_int_equal(f->drained, 1);
}

static void test_never_full(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 10; i++) {
        sink_write(&f->sink, f->data, 1000);
        take(f, 1000);
    }
    assert_int_equal(f->drained, 0);
}

/* A thread writes a regular file: all bytes arrive, and the loop is told. */
static void test_file(void **state)
{
    struct fixture *f = *state;
    struct sink sink;
    FILE *file = tmpfile();
    assert_non_null(file);
    sink_init(&sink, &f->loop, fileno(file), on_drained, f);
    assert_non_null(sink.writer);
    for (int i = 0; i < 4; i++)
        sink_write(&sink, f->data, MUCH);
    for (int i = 0; i < 1000 && sink_pending(&sink) > 0; i++)
        assert_int_equal(loop_once(&f->loop, 1000), 0);
    assert_int_equal(sink_pending(&sink), 0);
    assert_int_equal(sink.failed, 0);
    sink_fini(&sink);
    assert_int_equal(lseek(fileno(file), 0, SEEK_END), 4 * MUCH);
    fclose(file);
}

/* No call blocks while the writer's thread blocks, here on a pipe that is full. */
static void test_stuck_writer(void **state)
{
    struct fixture *f = *state;
    struct writer *w = NULL;
    FILE *other = tmpfile();
    int file = 0;
    assert_int_equal(writer_open(&w), 0);
    assert_int_equal(writer_add(w, fileno(other), false), 0);
    assert_int_equal(writer_add(w, f->sink.fd, false), 1);
    assert_int_equal(writer_first_pending(w), -1);
    assert_int_equal(writer_put(w, 1, f->data, MUCH), 0);
    assert_int_equal(writer_failed(w, &file), 0);
    assert_int_equal(file, -1);
    assert_int_equal(writer_first_pending(w), 1);
    assert_true(writer_pending(w, NULL) > 0);
    close(f->in); /* the pipe has no reader any more: the write fails and the rest is dropped */
    f->in = -1;
    for (int i = 0; i < 10000 && writer_pending(w, NULL) > 0; i++)
        loop_once(&f->loop, 1);
    assert_int_equal(writer_failed(w, &file), EPIPE);
    assert_int_equal(file, 1);
    assert_int_equal(writer_put(w, 1, "x", 1), 0);
    assert_int_equal(writer_pending(w, NULL), 0);
    assert_true(writer_close(w));
    fclose(other);
}

static void test_outlet(void **state)
{
    const uint64_t moved = 100 * CLOCK_S, late = moved + OUTLET_STALL_MS * CLOCK_MS;
    struct outlet_loss loss = {.lines = 3, .bytes = 70};
    char line[160];
    (void)state;
    assert_int_equal(outlet_state(999, 1000, moved, late), OUTLET_FREE);
    assert_int_equal(outlet_state(1000, 1000, moved, late - 1), OUTLET_FULL);
    assert_int_equal(outlet_state(1000, 1000, moved, late), OUTLET_DROP);
    assert_int_equal(outlet_state(1000, 1000, moved, moved - 1), OUTLET_FULL);
    size_t n = outlet_say(&loss, "it slept", line, sizeof(line));
    assert_string_equal(line, "hvdrun: 3 lines of output (70 bytes) are missing here: it slept\n");
    assert_int_equal(n, strlen(line));
    assert_int_equal(loss.lines + loss.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outlet),
        cmocka_unit_test_setup_teardown(test_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stuck_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drained_by_the_loop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drained_by_a_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nobody_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_never_full, setup, teardown),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
