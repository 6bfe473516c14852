/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_facts: what ranks report of their GPUs and their NCCL, the message that follows from these
 * reports, and what survivors do with their communicator.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "core/backend/nccl_facts.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define RANKS    4

/* host, gpu (0: none), gpus seen, nccl, cuda, driver, sm, hides */
struct short_fact {
    char host;
    int gpu, gpus, nccl, cuda, driver, sm;
    bool hides;
};

static const struct {
    const char *name;
    struct short_fact rank[RANKS]; /* ends at the first one without a host */
    enum nccl_verdict verdict;
    const char *words, *doctor;
} cases[] = {
    {"one host",
     {{'a', 1, 4, 22707, 13000, 13000, 90, 0}, {'a', 2, 4, 22707, 13000, 13000, 90, 0}},
     NCCL_GOOD,
     "",
     ""},
    {"the same GPU number on two hosts is not the same GPU",
     {{'a', 1, 1, 22707, 12080, 13000, 90, 0}, {'b', 1, 1, 22707, 12080, 13000, 90, 0}},
     NCCL_GOOD,
     "",
     ""},
    {"no driver",
     {{'a', 1, 1, 22707, 13000, 13000, 90, 0}, {'b', 0, 0, 22707, 13000, 0, 0, 0}},
     NCCL_BAD,
     "rank 1 on host-b has no NVIDIA driver",
     "HVD5001"},
    {"hidden",
     {{'a', 1, 1, 22707, 13000, 13000, 90, 0}, {'a', 0, 0, 22707, 13000, 13000, 0, 1}},
     NCCL_BAD,
     "CUDA_VISIBLE_DEVICES hides every GPU from rank 1 on host-a",
     "HVD5005"},
    {"a driver, no GPU",
     {{'a', 0, 0, 22707, 13000, 13000, 0, 0}},
     NCCL_BAD,
     "rank 0 on host-a sees no GPU",
     "HVD5004"},
    {"four ranks, two GPUs, taken in turn",
     {{'a', 1, 2, 22707, 13000, 13000, 90, 0},
      {'a', 2, 2, 22707, 13000, 13000, 90, 0},
      {'a', 1, 2, 22707, 13000, 13000, 90, 0},
      {'a', 2, 2, 22707, 13000, 13000, 90, 0}},
     NCCL_BAD,
     "4 ranks on host-a, which has 2 GPUs",
     "HVD5004"},
    {"the third has no ordinal left",
     {{'b', 1, 1, 22707, 13000, 13000, 90, 0},
      {'a', 1, 1, 22707, 13000, 13000, 90, 0},
      {'a', 0, 1, 22707, 13000, 13000, 0, 0}},
     NCCL_BAD,
     "2 ranks on host-a, which has 1 GPU:",
     "HVD5004"},
    {"both took the first",
     {{'a', 1, 4, 22707, 13000, 13000, 90, 0}, {'a', 1, 4, 22707, 13000, 13000, 90, 0}},
     NCCL_BAD,
     "ranks 0 and 1 use the same GPU of host-a",
     "HVD5004"},
    {"each was given the same one",
     {{'a', 1, 1, 22707, 13000, 13000, 90, 0}, {'a', 1, 1, 22707, 13000, 13000, 90, 0}},
     NCCL_BAD,
     "ranks 0 and 1 use the same GPU of host-a",
     "HVD5004"},
    {"no NCCL",
     {{'a', 1, 1, 22707, 13000, 13000, 90, 0}, {'b', 1, 1, 0, 0, 13000, 90, 0}},
     NCCL_BAD,
     "rank 1 on host-b cannot use NCCL: /b/libnccl",
     "HVD6001"},
    {"two versions",
     {{'a', 1, 1, 22707, 13000, 13000, 90, 0},
      {'b', 1, 1, 22707, 13000, 13000, 90, 0},
      {'c', 1, 1, 22105, 12040, 13000, 90, 0}},
     NCCL_BAD,
     "rank 0 on host-a has NCCL 2.27.7 (/a/libnccl), rank 2 on host-c has 2.21.5 (/c/libnccl)",
     "HVD9601"},
    {"Volta, CUDA 13",
     {{'a', 1, 1, 22707, 13000, 13000, 70, 0}},
     NCCL_BAD,
     "NCCL 2.27.7 of rank 0 on host-a was built for CUDA 13.0 and has no code for so old a GPU "
     "(sm_70)",
     "HVD6003"},
    {"Volta, CUDA 12", {{'a', 1, 1, 22707, 12080, 13000, 70, 0}}, NCCL_GOOD, "", ""},
    {"Kepler", {{'a', 1, 1, 21403, 11080, 11080, 37, 0}}, NCCL_BAD, "(sm_37)", "HVD6003"},
    {"Hopper, CUDA 11.0",
     {{'a', 1, 1, 21403, 11000, 13000, 90, 0}},
     NCCL_WARN,
     "built for CUDA 11.0 and is older than the GPU",
     "HVD6003"},
    {"Ada, CUDA 11.0", {{'a', 1, 1, 21403, 11000, 13000, 89, 0}}, NCCL_GOOD, "", ""},
    {"Hopper, CUDA 11.8", {{'a', 1, 1, 21403, 11080, 13000, 90, 0}}, NCCL_GOOD, "", ""},
    {"Blackwell, CUDA 12.4",
     {{'a', 1, 1, 22105, 12040, 13000, 100, 0}},
     NCCL_WARN,
     "CUDA 12.4 and is older than the GPU",
     "HVD6003"},
    {"Blackwell, CUDA 12.8", {{'a', 1, 1, 22605, 12080, 13000, 120, 0}}, NCCL_GOOD, "", ""},
    {"GB10, CUDA 13", {{'a', 1, 1, 22605, 13000, 13000, 121, 0}}, NCCL_GOOD, "", ""},
    {"nothing is known of the build", {{'a', 1, 1, 21403, 0, 13000, 90, 0}}, NCCL_GOOD, "", ""},
    {"two drivers",
     {{'a', 1, 1, 22707, 12080, 13000, 90, 0}, {'b', 1, 1, 22707, 12080, 12080, 90, 0}},
     NCCL_WARN,
     "the driver of rank 0 on host-a is for CUDA 13.0, that of rank 1 on host-b for 12.8",
     "HVD9601"},
    {"the worse of two",
     {{'a', 1, 1, 22707, 12080, 13000, 90, 0}, {'b', 1, 1, 22605, 12080, 12080, 90, 0}},
     NCCL_BAD,
     "one image for all ranks",
     "HVD9601"},
};

static struct nccl_fact expand(const struct short_fact *s, int rank)
{
    struct nccl_fact f = {.rank = rank,
                          .nccl = s->nccl,
                          .cuda = s->cuda,
                          .driver = s->driver,
                          .gpus = s->gpus,
                          .sm = s->sm,
                          .hides_gpus = s->hides};
    f.host[0] = s->host;
    f.gpu[15] = (uint8_t)s->gpu;
    snprintf(f.name, sizeof(f.name), "host-%c", s->host);
    snprintf(f.why, sizeof(f.why), "/%c/libnccl", s->host);
    return f;
}

static void test_cases(void **state)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct nccl_fact facts[RANKS];
        struct err err = {.msg = "untouched"};
        int n = 0;
        for (; n < RANKS && cases[i].rank[n].host; n++)
            facts[n] = expand(&cases[i].rank[n], n);
        enum nccl_verdict v = nccl_facts_judge(facts, n, &err);
        if (v != cases[i].verdict || !strstr(err.msg, cases[i].words) ||
            !strstr(err.msg, cases[i].doctor) || (v == NCCL_GOOD && err.msg[0]))
            fail_msg("%s: %d \"%s\"", cases[i].name, v, err.msg);
        assert_int_equal(err.code, v == NCCL_BAD ? -ENOTSUP : 0);
        if (strchr(err.msg, '\n'))
            fail_msg("%s: the message has more than one line", cases[i].name);
    }
}

/* Two ranks on one GPU: both need the variable, and an NCCL that knows it. */
static void test_sharing(void **state)
{
    static const struct {
        int nccl;
        bool shares[2];
        enum nccl_verdict verdict;
        const char *words;
    } of[] = {
        {23003, {true, true}, NCCL_GOOD, ""},
        {23003, {true, false}, NCCL_BAD, "NCCL_MULTI_RANK_GPU_ENABLE=1"},
        {23003, {false, true}, NCCL_BAD, "NCCL_MULTI_RANK_GPU_ENABLE=1"},
        {23003, {false, false}, NCCL_BAD, "NCCL_MULTI_RANK_GPU_ENABLE=1"},
        {22907, {true, true}, NCCL_BAD, "from 2.30 on"},
        {0, {true, true}, NCCL_BAD, "rank 0 on host-a cannot use NCCL"},
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        struct nccl_fact facts[2];
        struct err err;
        for (int r = 0; r < 2; r++) {
            const struct short_fact fact = {'a', 1, 1, of[i].nccl, 13000, 13000, 90, 0};
            facts[r] = expand(&fact, r);
            facts[r].shares_gpu = of[i].shares[r];
        }
        enum nccl_verdict v = nccl_facts_judge(facts, 2, &err);
        if (v != of[i].verdict || !strstr(err.msg, of[i].words))
            fail_msg("%zu: %d \"%s\"", i, v, err.msg);
    }
}

/* The verdict does not depend on the order of the ranks. */
static void test_order(void **state)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct nccl_fact facts[RANKS], turned[RANKS];
        struct err err;
        int n = 0;
        for (; n < RANKS && cases[i].rank[n].host; n++)
            facts[n] = expand(&cases[i].rank[n], n);
        for (int r = 0; r < n; r++)
            turned[r] = facts[n - 1 - r];
        if (nccl_facts_judge(turned, n, &err) != cases[i].verdict)
            fail_msg("%s, ranks in reverse order: \"%s\"", cases[i].name, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests_name("backend/nccl_facts", tests, NULL, NULL);
}
