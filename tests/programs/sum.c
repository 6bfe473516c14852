/* SPDX-License-Identifier: Apache-2.0
 *
 * sum [ROUNDS [HOSTS]]: joins the world through its launcher, sums numbers, checks them, leaves;
 * ROUNDS times. With HOSTS the world must have so many hosts. Prints one line for each rank. For
 * the tests of launchers: it uses only hvd.h and the shared library.
 */
#include <hvd.h>

#include <stdio.h>
#include <stdlib.h>

#define COUNT 5000

static int fail(const char *what)
{
    fprintf(stderr, "sum: %s: %s\n", what, hvd_error());
    return 1;
}

static int one_round(int hosts)
{
    static int64_t data[COUNT];
    if (hvd_init() < 0)
        return fail("hvd_init");
    int rank = hvd_rank(), size = hvd_size();
    for (int i = 0; i < COUNT; i++)
        data[i] = (int64_t)(rank + 1) * (i + 1);
    if (hvd_allreduce("numbers", data, data, COUNT, HVD_INT64, HVD_SUM) < 0)
        return fail("hvd_allreduce");
    for (int i = 0; i < COUNT; i++) {
        int64_t want = (int64_t)size * (size + 1) / 2 * (i + 1);
        if (data[i] != want) {
            fprintf(stderr, "sum: rank %d: element %d is %lld, not %lld\n", rank, i,
                    (long long)data[i], (long long)want);
            return 1;
        }
    }
    if (hosts && hvd_cross_size() != hosts) {
        fprintf(stderr, "sum: rank %d sees %d hosts, not %d\n", rank, hvd_cross_size(), hosts);
        return 1;
    }
    printf("rank %d of %d on host %d of %d: sum ok\n", rank, size, hvd_cross_rank(),
           hvd_cross_size());
    fflush(stdout);
    return hvd_shutdown() < 0 ? fail("hvd_shutdown") : 0;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1, hosts = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 0; i < rounds; i++) {
        if (one_round(hosts) != 0)
            return 1;
    }
    return 0;
}
