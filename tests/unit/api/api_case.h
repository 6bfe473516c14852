/* SPDX-License-Identifier: Apache-2.0
 *
 * api_case: an API client on a loop, and the server of tests/harness/kube_server that it asks.
 * Included by one test file a program, behind cmocka.h.
 */
#ifndef HVD_TESTS_UNIT_API_API_CASE_H
#define HVD_TESTS_UNIT_API_API_CASE_H

#include <stdio.h>

#include "operator/api/api.h"
#include "tests/harness/kube_server.h"

static struct loop loop;
static struct access to;
static struct api *api;

static void turn(void)
{
    assert_int_equal(loop_once(&loop, 20), 0);
}

static int api_case_setup(void **state)
{
    (void)state;
    if (loop_init(&loop) < 0 ||
        asprintf(&to.server, "http://127.0.0.1:%d", kube_server_start(NULL, NULL)) < 0)
        return -1;
    return api_open(&api, &loop, &to, NULL);
}

static int api_case_teardown(void **state)
{
    (void)state;
    api_close(api);
    access_fini(&to);
    loop_fini(&loop);
    kube_server_stop();
    return 0;
}

#endif
