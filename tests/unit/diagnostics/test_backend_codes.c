/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks to which errors of the back ends refer (core/backend/doctor.h) are in the doctor's
 * catalogue, with the same id and code.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/doctor.h"
#include "diagnostics/registry.h"

static void test_codes(void **state)
{
    static const char *const named[] = {
        CHECK_NVML_LOAD,      CHECK_GPU_COUNT,    CHECK_VISIBLE_DEVICES, CHECK_CUINIT,
        CHECK_DRIVER_VERSION, CHECK_GPU_ARCH,     CHECK_NCCL_LOAD,       CHECK_NCCL_MULTIPLE,
        CHECK_NCCL_KNOWN_BAD, CHECK_VERSION_SKEW,
    };
    for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++) {
        char id[64], code[16];
        assert_int_equal(sscanf(named[i], "%63[^,], %15s", id, code), 2);
        const struct check *check = NULL;
        if (registry_find(id, &check, NULL) < 0 || strcmp(check->code, code) != 0)
            fail_msg("%s is %s in the catalogue", named[i], check ? check->code : "not there");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
