/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_fatbin: the file of kernels as nvcc has built it: machine code for every architecture
 * that kernels.mk lists and PTX of the oldest, every kernel in each of them. No GPU is needed.
 * Skipped where there is no nvcc.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/backend/gpu_kernels.h"
#include "tests/fake/cuda/use.h"

/* The file's head, and that of each part of it. */
struct head {
    uint32_t magic;
    uint16_t version, head_size;
    uint64_t size; /* of all parts */
};

struct part {
    uint16_t kind, unknown;
    uint32_t head_size;
    uint64_t size; /* behind the head */
    uint32_t packed_size, unknown2;
    uint16_t minor, major;
    uint32_t sm;
};

#define MAGIC 0xba55ed50u
enum { PTX = 1, ELF = 2 };

static const unsigned architectures[] = {75, 80, 86, 89, 90, 100, 120};
#define ARCHITECTURES (sizeof(architectures) / sizeof(architectures[0]))

static char *file;
static size_t file_size;

/* Nothing where it was not built. */
static int read_file(void **state)
{
    char path[PATH_MAX];
    fake_build_path("hvd_kernels.fatbin", path);
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

/* A name as a string of its own, or as the end of one (".text.NAME"). */
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

static void check_part(const struct part *p, const char *data, bool *elf, bool *ptx)
{
    bool known = false;
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        if (p->kind != ELF || p->sm != architectures[i])
            continue;
        elf[i] = known = true;
        assert_memory_equal(data, "\177ELF", 4);
    }
    if (p->kind == PTX && p->sm == architectures[0])
        *ptx = known = true;
    if (!known)
        fail_msg("a part of kind %u for sm_%u", p->kind, p->sm);
    for (int k = 0; k < GPU_KERNELS; k++)
        if (!has_name(data, p->size, gpu_kernel_names[k]))
            fail_msg("no %s in the %s for sm_%u", gpu_kernel_names[k],
                     p->kind == ELF ? "code" : "PTX", p->sm);
}

static void test_parts(void **state)
{
    struct head head;
    bool elf[ARCHITECTURES] = {false}, ptx = false;
    if (!file) {
        print_message("SKIP: backend/cuda_fatbin: nvcc: the kernels were not built here\n");
        skip();
    }
    assert_true(file_size > sizeof(head));
    memcpy(&head, file, sizeof(head));
    assert_int_equal(head.magic, MAGIC);
    assert_true(head.head_size + head.size <= file_size);
    for (size_t at = head.head_size; at < head.head_size + head.size;) {
        struct part part;
        assert_true(file_size - at >= sizeof(part));
        memcpy(&part, file + at, sizeof(part));
        assert_true(part.head_size >= sizeof(part) && part.head_size <= file_size - at);
        assert_true(part.size <= file_size - at - part.head_size);
        check_part(&part, file + at + part.head_size, elf, &ptx);
        at += part.head_size + part.size;
    }
    for (size_t i = 0; i < ARCHITECTURES; i++)
        if (!elf[i])
            fail_msg("no code for sm_%u", architectures[i]);
    assert_true(ptx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, read_file, forget_file);
}
