/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/harness/wire, by which benchmarks delay packets between hosts: a byte over TCP there and
 * back takes two delays, and not much more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/times.h"
#include "tests/harness/world.h"

#define DELAY_US 3000
#define TRIPS    41
#define PORT     4000

static const struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = PORT};

static int answer(void)
{
    auto_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte;
    if (bind(listener, (const struct sockaddr *)&place, sizeof(place)) < 0 ||
        listen(listener, 1) < 0)
        return 1;
    auto_close int fd = accept(listener, NULL, NULL);
    while (read(fd, &byte, 1) == 1) {
        if (write(fd, &byte, 1) != 1)
            return 1;
    }
    return 0;
}

static int ask(uint64_t *times)
{
    struct sockaddr_in to = place;
    const struct timespec nap = {.tv_nsec = 10000000};
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte = 1;
    to.sin_addr.s_addr = inet_addr("10.77.0.1");
    while (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        nanosleep(&nap, NULL);
    for (int i = 0; i < TRIPS; i++) {
        uint64_t begin = clock_ns();
        if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
            return 1;
        times[i] = clock_ns() - begin;
    }
    return 0;
}

static int talk(int rank, int size, void *arg)
{
    return rank == 0 ? answer() : ask(arg);
}

static void test_delay(void **state)
{
    const struct world_options o = {.size = 2, .hosts = 2, .delay_us = DELAY_US};
    uint64_t *times = world_shared(TRIPS * sizeof(*times));
    if (!world_can_netns("multi/wire/delay"))
        skip();
    assert_int_equal(world_run_options(&o, talk, times), 0);
    times_sort(times, TRIPS);
    assert_in_range(times[0], 2 * DELAY_US * 1000, UINT64_MAX);
    /* so that another try of TCP (200 ms) is not what brought the byte */
    assert_in_range(times[TRIPS / 2], 0, 10 * DELAY_US * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_delay)};
    return cmocka_run_group_tests_name("multi/test_wire", tests, NULL, NULL);
}
