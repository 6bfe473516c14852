/* SPDX-License-Identifier: Apache-2.0
 *
 * elf: what a shared object says about itself: the names it needs, where it looks for them, which
 * glibc it was linked against. Pure: over bytes that somebody else owns, every byte foreign.
 *
 * 64 bit little-endian only, as everything that trains. Any thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_ELF_H
#define HVD_DIAGNOSTICS_PROBER_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_NEEDED_MAX 128

struct elf {
    const uint8_t *data;
    size_t len;
    int machine;                          /* EM_X86_64 ... */
    const char *soname, *rpath, *runpath; /* inside data; NULL when there is none */
    const char *needed[ELF_NEEDED_MAX];   /* inside data */
    int nneeded;
    char glibc[16];   /* highest GLIBC_x.y needed: "2.34"; empty: none */
    char glibcxx[16]; /* highest GLIBCXX_x.y.z */
};

/* 0; -ENOEXEC: not such a file; -EINVAL: damaged. An object without a dynamic part is fine. */
int elf_parse(struct elf *ret, const void *data, size_t len);

/* A section by name: false when there is none or the file has no section headers. */
bool elf_section(const struct elf *elf, const char *name, const uint8_t **ret, size_t *ret_len);

/* True when the bytes stand in the read-only data (".rodata"); at, when given, is where. */
bool elf_rodata_has(const struct elf *elf, const char *text, const char **at, size_t *ret_left);

/* The file in memory, read-only; elf->data is the mapping. -errno as elf_parse() or open(2). */
int elf_map(struct elf *ret, const char *path);
void elf_unmap(struct elf *elf);

/* 0: this file has the machine and class of this program; cheap (reads 20 bytes). */
int elf_is_ours(const char *path);

#endif
