/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_elf: what hvd-probe reads from an image: a shared object and the loader's cache, of any
 * bytes.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* hvd-probe is no library, so its files are included here. */
#include "diagnostics/prober/elf.c"
#include "diagnostics/prober/ld.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t sum; /* keeps the compiler from removing the calls */

static void read_all(const struct elf *e)
{
    const uint8_t *section;
    const char *at;
    size_t len;
    for (int i = 0; i < e->nneeded; i++)
        sum += strlen(e->needed[i]);
    sum += (e->soname ? strlen(e->soname) : 0) + (e->rpath ? strlen(e->rpath) : 0) +
           (e->runpath ? strlen(e->runpath) : 0) + strlen(e->glibc) + strlen(e->glibcxx);
    if (elf_section(e, ".rodata", &section, &len) && len)
        sum += section[0] + section[len - 1];
    if (elf_rodata_has(e, "NCCL", &at, &len))
        sum += (size_t)at[0] + (size_t)at[len - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct elf e;
    char *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    if (elf_parse(&e, exact, size) == 0)
        read_all(&e);
    for (int i = 0; i < 4; i++) {
        const char *hit = ld_cache_find(exact, size, "libx.so", i);
        sum += hit ? strlen(hit) : 0;
    }
    free(exact);
    return 0;
}
