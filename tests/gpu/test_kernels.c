/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels: the kernels compared with core/coll/reduce: all types, odd sizes and alignments,
 * many pieces in one launch. On the machine's GPU. On a machine without one, the fake driver runs
 * them, and only the host's computation of launches is tested.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/coll/half.h"
#include "core/coll/reduce.h"
#include "tests/gpu/gpu.h"

#define ROOM    ((size_t)3 << 19) /* of each buffer */
#define BUFFERS 2

static struct gpu gpu;
static struct cuda_memory device[BUFFERS];
static uint8_t *host[BUFFERS], *wanted;

/* Elements of the pieces of one launch. */
static const size_t sizes[] = {1,    2,    3,    4,    5,     7,     8,     9,     15,    16,
                               17,   31,   33,   63,   64,    65,    127,   255,   256,   257,
                               1000, 1023, 1024, 1025, 0,     2047,  2048,  2049,  4095,  4096,
                               4097, 8191, 8192, 8193, 10007, 16383, 16384, 16385, 32769, 40961};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Every other launch has so few blocks that each block processes several chunks. */
static int places, launches;

static void change_places(void)
{
    gpu.device->multiprocessors = launches++ % 2 ? 1 : places;
}

/* The fake is slow, so it gets fewer combinations. */
static size_t step(void)
{
    return gpu.fake ? 2 : 1;
}

static uint64_t seed = 88172645463325252u;

static uint64_t random_bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Any bits: every kind of number, of zero, of infinity and of NaN. */
static void fill(uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t x = random_bits();
        /* Sometimes a special value. */
        if (x % 61 == 0)
            x = 0;
        else if (x % 61 == 1)
            x = 0x8000000080008000u;
        memcpy(at + i, &x, 8);
    }
}

static double as_number(enum hvd_dtype t, const uint8_t *at)
{
    uint16_t h;
    float f;
    double d;
    switch (t) {
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
        memcpy(&h, at, sizeof(h));
        return t == HVD_FLOAT16 ? half_to_float(h) : bfloat_to_float(h);
    case HVD_FLOAT32:
        memcpy(&f, at, sizeof(f));
        return f;
    case HVD_FLOAT64:
        memcpy(&d, at, sizeof(d));
        return d;
    default:
        return 0;
    }
}

/* The same bits, or both a NaN. */
static void expect_same(const char *what, enum hvd_dtype t, const uint8_t *got, const uint8_t *want,
                        size_t n)
{
    size_t elem = hvd_dtype_size(t);
    for (size_t i = 0; i < n; i++, got += elem, want += elem) {
        double a = as_number(t, got), b = as_number(t, want);
        if (memcmp(got, want, elem) == 0 || (a != a && b != b))
            continue;
        uint64_t x = 0, y = 0;
        memcpy(&x, got, elem);
        memcpy(&y, want, elem);
        fail_msg("%s: element %zu of %zu is %#llx (%g), want %#llx (%g)", what, i, n,
                 (unsigned long long)x, a, (unsigned long long)y, b);
    }
}

/* ---- moving ---- */

static void scale(const struct gpu_change *c, enum hvd_dtype t, void *dst, const void *src,
                  size_t n)
{
    const struct reduce_plan plan = {t, HVD_SUM, c->prescale, c->divisor, c->postscale};
    reduce(&plan, dst, &src, 1, n, NULL, true, false);
}

/* Between 16 and 32 bits: scaled as 16 bits. */
static void reference_integers(const struct gpu_change *c, uint8_t *dst, const uint8_t *src,
                               size_t n)
{
    bool cut = c->from == HVD_INT32;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, src + i * (cut ? 4 : 2), sizeof(bits)); /* the low ones */
        scale(c, cut ? c->to : c->from, &bits, &bits, 1);
        int32_t whole = c->from == HVD_INT16 ? (int16_t)bits : bits;
        memcpy(dst + i * (cut ? 2 : 4), cut ? (void *)&bits : &whole, cut ? 2 : 4);
    }
}

/* The expected result for n elements. */
static void reference(const struct gpu_change *c, uint8_t *dst, const uint8_t *src, size_t n)
{
    bool narrow = c->from == HVD_FLOAT32;
    if (c->from == c->to) {
        scale(c, c->from, dst, src, n);
        return;
    }
    if (c->from == HVD_INT32 || c->to == HVD_INT32) {
        reference_integers(c, dst, src, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t h = 0;
        float f;
        memcpy(narrow ? (void *)&f : &h, src + i * (narrow ? 4 : 2), narrow ? 4 : 2);
        if (!narrow)
            f = c->from == HVD_FLOAT16 ? half_to_float(h) : bfloat_to_float(h);
        scale(c, HVD_FLOAT32, &f, &f, 1);
        h = c->to == HVD_FLOAT16 ? half_from_float(f) : bfloat_from_float(f);
        memcpy(dst + i * (narrow ? 2 : 4), narrow ? (void *)&h : &f, narrow ? 2 : 4);
    }
}

/* All sizes in one launch. Piece i begins i steps after a multiple of 16 bytes. */
static void move_with(const struct gpu_change *c, size_t from_step, size_t to_step)
{
    struct gpu_piece pieces[SIZES];
    size_t a = hvd_dtype_size(c->from), b = hvd_dtype_size(c->to), in = 0, out = 0;
    struct err err = {0};
    char what[128];
    change_places();
    memset(host[1], 0x5a, ROOM);
    gpu_copy(&gpu, CUDA_COPY_IN, device[1].at, host[1], ROOM);
    memcpy(wanted, host[1], ROOM);
    for (size_t i = 0; i < SIZES; i++) {
        in = (in + 15) / 16 * 16 + i * from_step % 16;
        out = (out + 15) / 16 * 16 + i * to_step % 16;
        pieces[i] =
            (struct gpu_piece){(char *)device[0].at + in, (char *)device[1].at + out, sizes[i]};
        reference(c, wanted + out, host[0] + in, sizes[i]);
        in += sizes[i] * a;
        out += sizes[i] * b;
        assert_true(in <= ROOM && out <= ROOM);
    }
    gpu_need(cuda_move(gpu.device, c, pieces, SIZES, gpu.stream, &err), &err);
    gpu_finish(&gpu);
    gpu_copy(&gpu, CUDA_COPY_OUT, host[1], device[1].at, ROOM);
    snprintf(what, sizeof(what), "%s to %s * %g / %d * %g, bytes %zu and %zu",
             hvd_dtype_name(c->from), hvd_dtype_name(c->to), c->prescale, c->divisor, c->postscale,
             from_step, to_step);
    for (size_t i = 0; i < SIZES; i++) {
        size_t at = (size_t)((char *)pieces[i].to - (char *)device[1].at);
        expect_same(what, c->to, host[1] + at, wanted + at, sizes[i]);
        memcpy(host[1] + at, wanted + at, sizes[i] * b);
    }
    /* Nothing beside the pieces may change. */
    if (memcmp(host[1], wanted, ROOM) != 0)
        fail_msg("%s: wrote beside its pieces", what);
}

static void move_all_ways(enum hvd_dtype from, enum hvd_dtype to)
{
    static const struct {
        double prescale;
        int divisor;
        double postscale;
    } scales[] = {{1, 1, 1}, {0.3, 1, 1}, {1, 8, 1}, {1, 3, 1}, {-2.5, 2, 0.1}, {1, 7, 1.7}};
    size_t a = hvd_dtype_size(from), b = hvd_dtype_size(to);
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i += step()) {
        struct gpu_change c = {from, to, scales[i].prescale, scales[i].divisor,
                               scales[i].postscale};
        move_with(&c, 0, 0);
        move_with(&c, a, b); /* elements are aligned, vectors are not */
        move_with(&c, 0, b);
        move_with(&c, 1, 3); /* elements are not aligned either */
    }
}

static void test_move(void **state)
{
    for (int t = 0; t < REDUCE_DTYPES; t++)
        move_all_ways((enum hvd_dtype)t, (enum hvd_dtype)t);
    move_all_ways(HVD_FLOAT32, HVD_FLOAT16);
    move_all_ways(HVD_FLOAT16, HVD_FLOAT32);
    move_all_ways(HVD_FLOAT32, HVD_BFLOAT16);
    move_all_ways(HVD_BFLOAT16, HVD_FLOAT32);
    move_all_ways(HVD_INT16, HVD_INT32);
    move_all_ways(HVD_INT32, HVD_INT16);
    move_all_ways(HVD_UINT16, HVD_INT32);
    move_all_ways(HVD_INT32, HVD_UINT16);
}

/* More pieces than fit into one launch. */
static void test_many(void **state)
{
    enum { MANY = 1500 };
    static struct gpu_piece pieces[MANY];
    const struct gpu_change c = {HVD_INT16, HVD_INT16, 3, 1, 1};
    struct err err = {0};
    size_t at = 0;
    for (size_t i = 0; i < MANY; i++) {
        pieces[i] =
            (struct gpu_piece){(char *)device[0].at + at, (char *)device[1].at + at, i % 400};
        reference(&c, wanted + at, host[0] + at, i % 400);
        at += i % 400 * 2;
    }
    gpu_need(cuda_move(gpu.device, &c, pieces, MANY, gpu.stream, &err), &err);
    gpu_finish(&gpu);
    gpu_copy(&gpu, CUDA_COPY_OUT, host[1], device[1].at, ROOM);
    expect_same("many pieces", HVD_INT16, host[1], wanted, at / 2);
}

static int open_gpu(void **state)
{
    struct err err = {0};
    gpu_open(&gpu, "gpu/kernels");
    places = gpu.device->multiprocessors;
    for (int i = 0; i < BUFFERS; i++) {
        gpu_need(cuda_memory_reserve(gpu.device, &device[i], ROOM + 64, &err), &err);
        host[i] = malloc(ROOM + 64);
        if (!host[i])
            return -1;
    }
    wanted = malloc(ROOM + 64);
    if (!wanted)
        return -1;
    fill(host[0], ROOM);
    gpu_copy(&gpu, CUDA_COPY_IN, device[0].at, host[0], ROOM);
    return 0;
}

static int close_gpu(void **state)
{
    for (int i = 0; i < BUFFERS; i++) {
        cuda_memory_free(gpu.device, &device[i]);
        free(host[i]);
    }
    free(wanted);
    gpu_close(&gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
