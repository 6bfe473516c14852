/* SPDX-License-Identifier: Apache-2.0
 *
 * elf: parses a shared object: the libraries it needs, its search paths, the glibc version it was
 * linked against. Pure: works on bytes that the caller owns and that are untrusted.
 *
 * 64-bit little-endian only, as all machines that hvd supports. Any thread.
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
    char glibc[16];   /* highest GLIBC_x.y that it needs: "2.34"; empty: none */
    char glibcxx[16]; /* highest GLIBCXX_x.y.z that it needs */
};

/* Parses an object. 0; -ENOEXEC: not a 64-bit ELF object; -EINVAL: damaged. An object without a
 * dynamic section is valid. */
int elf_parse(struct elf *ret, const void *data, size_t len);

/* Finds a section by name; false: there is none, or the file has no section headers. */
bool elf_section(const struct elf *elf, const char *name, const uint8_t **ret, size_t *ret_len);

/* Returns whether the read-only data (".rodata") contains the text. at (may be NULL): where, with
 * *ret_left bytes of the section from there on. */
bool elf_rodata_has(const struct elf *elf, const char *text, const char **at, size_t *ret_left);

/* Maps a file read-only and parses it; elf->data is the mapping. -errno as elf_parse() or
 * open(2). */
int elf_map(struct elf *ret, const char *path);
void elf_unmap(struct elf *elf);

/* Returns 0 when the file is for the machine and class of this program, else -errno; reads only 20
 * bytes. */
int elf_is_ours(const char *path);

#endif
