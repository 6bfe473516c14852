/* SPDX-License-Identifier: Apache-2.0
 *
 * loop BYTES SECONDS: joins the world and sums BYTES of int32 repeatedly, in place, checking each
 * sum, until rank 0's SECONDS are over. Prints "rank R pid P ready" first and "rank R: N rounds" at
 * the end. After an error it prints the error and exits with 3. For the tests of faults.
 */
#include <hvd.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/clock.h"

static int fail(const char *what)
{
    fprintf(stderr, "loop: rank %d: %s: %s\n", hvd_rank(), what, hvd_error());
    return 3;
}

static int one_round(int32_t *data, int64_t count)
{
    int rank = hvd_rank(), size = hvd_size();
    for (int64_t i = 0; i < count; i++)
        data[i] = rank + (int32_t)i;
    if (hvd_allreduce("data", data, data, count, HVD_INT32, HVD_SUM) < 0)
        return fail("hvd_allreduce");
    for (int64_t i = 0; i < count; i++) {
        if (data[i] != size * (size - 1) / 2 + size * (int32_t)i) {
            fprintf(stderr, "loop: rank %d: element %lld is wrong\n", rank, (long long)i);
            return 4;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int64_t count = atoll(argv[1]) / (int64_t)sizeof(int32_t);
    uint64_t seconds = strtoull(argv[2], NULL, 10);
    int32_t *data = malloc((size_t)count * sizeof(*data) + 1);
    if (!data)
        return 2;
    if (hvd_init() < 0)
        return fail("hvd_init");
    printf("rank %d pid %d ready\n", hvd_rank(), (int)getpid());
    fflush(stdout);
    uint64_t deadline = deadline_in_ms(seconds * 1000);
    long rounds = 0;
    int rc = 0;
    for (uint8_t go = 1; rc == 0 && go; rounds++) {
        go = !deadline_passed(deadline);
        if (hvd_broadcast("go", &go, 1, HVD_UINT8, 0) < 0)
            rc = fail("hvd_broadcast");
        else
            rc = one_round(data, count);
    }
    if (rc == 0) {
        printf("rank %d: %ld rounds\n", hvd_rank(), rounds);
        rc = hvd_shutdown() < 0 ? fail("hvd_shutdown") : 0;
    }
    free(data);
    return rc;
}
