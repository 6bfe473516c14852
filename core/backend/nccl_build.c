/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_build: see nccl_build.h.
 */
#include "core/backend/nccl_build.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cleanup.h"

#define SECTIONS_MAX 1024
#define RODATA_MAX   (64u << 20) /* limit for the read-only data; NCCL's has less than one MiB */
#define NAME         ".rodata"

/* Reads a number of at most three digits at *at, before end, and moves *at after it. -1: there is
 * none. */
static int number(const char **at, const char *end)
{
    int v = -1;
    for (int digits = 0; *at < end && **at >= '0' && **at <= '9' && digits < 3; digits++, (*at)++)
        v = (v < 0 ? 0 : v * 10) + (**at - '0');
    return v;
}

int nccl_build_parse(const void *bytes, size_t n)
{
    static const char version[] = "NCCL version ", cuda[] = "+cuda";
    const char *at = bytes, *end = at + n;
    while (n > 0 && (at = memmem(at, (size_t)(end - at), version, sizeof(version) - 1)) != NULL) {
        at += sizeof(version) - 1;
        const char *s = at;
        while (s < end && ((*s >= '0' && *s <= '9') || *s == '.'))
            s++;
        if ((size_t)(end - s) < sizeof(cuda) - 1 || memcmp(s, cuda, sizeof(cuda) - 1) != 0)
            continue;
        s += sizeof(cuda) - 1;
        int major = number(&s, end);
        if (major <= 0 || s == end || *s++ != '.')
            continue;
        int minor = number(&s, end);
        if (minor >= 0 && minor < 100)
            return major * 1000 + minor * 10;
    }
    return 0;
}

static bool read_at(int fd, void *dst, size_t n, uint64_t offset)
{
    uint8_t *to = dst;
    if (offset > INT64_MAX - n)
        return false;
    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return true;
}

/* Sets *ret to the section of the read-only data; false: there is none, it is empty, or it is
 * larger than RODATA_MAX. */
static bool find_rodata(int fd, const Elf64_Shdr *sections, const Elf64_Ehdr *head, Elf64_Shdr *ret)
{
    if (head->e_shstrndx >= head->e_shnum)
        return false;
    const Elf64_Shdr *names = &sections[head->e_shstrndx];
    for (int i = 0; i < head->e_shnum; i++) {
        char name[sizeof(NAME)];
        if (sections[i].sh_name > names->sh_size || names->sh_offset > INT64_MAX / 2 ||
            !read_at(fd, name, sizeof(name), names->sh_offset + sections[i].sh_name))
            continue;
        if (memcmp(name, NAME, sizeof(name)) == 0) {
            *ret = sections[i];
            return ret->sh_size > 0 && ret->sh_size <= RODATA_MAX;
        }
    }
    return false;
}

int nccl_build_of(int fd)
{
    Elf64_Ehdr head;
    Elf64_Shdr rodata;
    if (!read_at(fd, &head, sizeof(head), 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB ||
        head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum == 0 || head.e_shnum > SECTIONS_MAX)
        return 0;
    auto_free Elf64_Shdr *sections = calloc(head.e_shnum, sizeof(*sections));
    if (!sections || !read_at(fd, sections, head.e_shnum * sizeof(*sections), head.e_shoff) ||
        !find_rodata(fd, sections, &head, &rodata))
        return 0;
    auto_free uint8_t *bytes = malloc(rodata.sh_size);
    if (!bytes || !read_at(fd, bytes, rodata.sh_size, rodata.sh_offset))
        return 0;
    return nccl_build_parse(bytes, rodata.sh_size);
}

int nccl_build_of_file(const char *path)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? 0 : nccl_build_of(fd);
}
