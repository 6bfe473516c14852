/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_fatbin: the file of kernels that nvcc has built contains machine code for every
 * architecture in kernels.mk, PTX of the oldest one, and every kernel in each of them. No GPU is
 * needed. Skipped if there is no nvcc.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/backend/cuda_kernels.h"
#include "tests/fake/cuda/use.h"

static const unsigned architectures[] = {75, 80, 86, 89, 90, 100, 120};
#define ARCHITECTURES (sizeof(architectures) / sizeof(architectures[0]))

static char *file;
static size_t file_size;

/* Leaves the file empty if it was not built. */
static int read_file(void **state)
{
    char path[PATH_MAX];
    build_path("hvd_kernels.fatbin", path);
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    file_size = (size_t)ftell(f);
    rewind(f);
    file = malloc(file_size);
    assert_non_null(file);
    assert_int_equal(fread(file, 1, file_size, f), file_size);
    fclose(f);
    return 0;
}

static int forget_file(void **state)
{
    free(file);
    return 0;
}

/* Whether the data contains the name at the end of a string (such as ".text.NAME"), before '(' or
 * at the end of a line. */
static bool has_name(const char *data, size_t size, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = data; (at = memmem(at, size - (size_t)(at - data), name, n)); at++) {
        char next = at + n < data + size ? at[n] : '\0';
        if (next == '\0' || next == '(' || next == '\n')
            return true;
    }
    return false;
}

static void check_part(const struct cuda_fatbin_part *p, const char *data, bool *elf, bool *ptx)
{
    bool known = false;
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        if (p->ptx || p->sm != architectures[i])
            continue;
        elf[i] = known = true;
        assert_memory_equal(data, "\177ELF", 4);
    }
    if (p->ptx && p->sm == architectures[0])
        *ptx = known = true;
    if (!known)
        fail_msg("%s for sm_%u", p->ptx ? "PTX" : "code", p->sm);
    for (int k = 0; k < GPU_KERNELS; k++)
        if (!has_name(data, p->n, gpu_kernel_names[k]))
            fail_msg("no %s in the %s for sm_%u", gpu_kernel_names[k], p->ptx ? "PTX" : "code",
                     p->sm);
}

static void test_parts(void **state)
{
    struct cuda_fatbin_part part;
    struct err err = {0};
    size_t at = 0;
    int rc;
    bool elf[ARCHITECTURES] = {false}, ptx = false;
    if (!file) {
        print_message("SKIP: backend/cuda_fatbin: nvcc: the kernels were not built here\n");
        skip();
    }
    while ((rc = cuda_fatbin_next(file, file_size, &at, &part, &err)) > 0)
        check_part(&part, file + part.at, elf, &ptx);
    assert_int_equal(rc, 0);
    for (size_t i = 0; i < ARCHITECTURES; i++)
        if (!elf[i])
            fail_msg("no code for sm_%u", architectures[i]);
    assert_true(ptx);
    char text[128];
    assert_int_equal(cuda_fatbin_text(file, file_size, text, sizeof(text), &err), 0);
    assert_string_equal(text, "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120, PTX of sm_75");
}

/* A file of two parts in nvcc's format, with one fault per case. */
static void test_broken(void **state)
{
    static const struct {
        size_t at;
        uint8_t byte;
        size_t size;
        const char *says;
    } table[] = {
        {0, 0x50, 15, "15 bytes are too short"},
        {0, 0x51, 144, "begins with 0xba55ed51"},
        {6, 8, 144, "begins with"},     /* a header that is too small */
        {6, 200, 144, "begins with"},   /* a header that is too large */
        {8, 144, 144, "the file says"}, /* a size that exceeds the file */
        {8, 80, 144, "inside of a part"},
        {20, 0, 144, "does not fit"}, /* the part's header */
        {21, 1, 144, "does not fit"},
        {31, 0x80, 144, "does not fit"}, /* the part's size */
        {24, 97, 144, "does not fit"},
    };
    struct err err = {0};
    char text[64] = "";
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        uint8_t bytes[144] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 128};
        uint8_t *first = bytes + 16, *second = bytes + 80;
        first[0] = 2, first[4] = 32, first[8] = 32, first[28] = 90;
        second[0] = 1, second[4] = 32, second[8] = 32, second[28] = 75;
        assert_int_equal(cuda_fatbin_text(bytes, 144, text, sizeof(text), &err), 0);
        assert_string_equal(text, "sm_90, PTX of sm_75");
        bytes[table[i].at] = table[i].byte;
        assert_int_equal(cuda_fatbin_text(bytes, table[i].size, text, sizeof(text), &err), -EINVAL);
        if (!strstr(err.msg, table[i].says))
            fail_msg("%zu: %s", i, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_broken)};
    return cmocka_run_group_tests(tests, read_file, forget_file);
}
