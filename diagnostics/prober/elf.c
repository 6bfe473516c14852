/* SPDX-License-Identifier: Apache-2.0
 *
 * elf: see elf.h. Each offset is checked against the length before it is used.
 */
#include "diagnostics/prober/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cleanup.h"

/* Copies n bytes at an offset to dst: the file's data may be unaligned. Returns false outside
 * the file. */
static bool take(const struct elf *e, uint64_t at, void *dst, size_t n)
{
    if (at > e->len || n > e->len - at)
        return false;
    memcpy(dst, e->data + at, n);
    return true;
}

/* The string at an offset; NULL unless it ends inside the file. */
static const char *string_at(const struct elf *e, uint64_t at)
{
    if (at >= e->len || !memchr(e->data + at, '\0', e->len - at))
        return NULL;
    return (const char *)e->data + at;
}

static bool header(const struct elf *e, Elf64_Ehdr *ret)
{
    return take(e, 0, ret, sizeof(*ret)) && memcmp(ret->e_ident, ELFMAG, SELFMAG) == 0 &&
           ret->e_ident[EI_CLASS] == ELFCLASS64 && ret->e_ident[EI_DATA] == ELFDATA2LSB;
}

static bool segment(const struct elf *e, const Elf64_Ehdr *eh, int i, Elf64_Phdr *ret)
{
    return eh->e_phentsize >= sizeof(*ret) && eh->e_phoff <= e->len &&
           take(e, eh->e_phoff + (uint64_t)i * eh->e_phentsize, ret, sizeof(*ret));
}

/* The file offset of an address of the loaded object; UINT64_MAX: no segment has it. */
static uint64_t file_offset(const struct elf *e, const Elf64_Ehdr *eh, uint64_t address)
{
    Elf64_Phdr ph;
    for (int i = 0; i < eh->e_phnum && segment(e, eh, i, &ph); i++) {
        if (ph.p_type == PT_LOAD && address >= ph.p_vaddr && address - ph.p_vaddr < ph.p_filesz &&
            ph.p_offset <= e->len)
            return ph.p_offset + (address - ph.p_vaddr);
    }
    return UINT64_MAX;
}

struct dynamic {
    uint64_t strtab, verneed; /* file offsets */
    uint64_t nverneed;
};

static const char *dynamic_string(const struct elf *e, const struct dynamic *d, uint64_t at)
{
    if (d->strtab == UINT64_MAX || at > e->len)
        return NULL;
    return string_at(e, d->strtab + at);
}

static void read_dynamic(struct elf *e, const Elf64_Ehdr *eh, const Elf64_Phdr *where,
                         struct dynamic *d)
{
    Elf64_Dyn dyn;
    uint64_t n = where->p_filesz / sizeof(dyn);
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < n; i++) {
            if (where->p_offset > e->len ||
                !take(e, where->p_offset + i * sizeof(dyn), &dyn, sizeof(dyn)) ||
                dyn.d_tag == DT_NULL)
                break;
            if (pass == 0 && dyn.d_tag == DT_STRTAB)
                d->strtab = file_offset(e, eh, dyn.d_un.d_ptr);
            else if (pass == 0 && dyn.d_tag == DT_VERNEED)
                d->verneed = file_offset(e, eh, dyn.d_un.d_ptr);
            else if (pass == 0 && dyn.d_tag == DT_VERNEEDNUM)
                d->nverneed = dyn.d_un.d_val;
            if (pass == 0)
                continue;
            const char *text = dynamic_string(e, d, dyn.d_un.d_val);
            if (dyn.d_tag == DT_SONAME)
                e->soname = text;
            else if (dyn.d_tag == DT_RPATH)
                e->rpath = text;
            else if (dyn.d_tag == DT_RUNPATH)
                e->runpath = text;
            else if (dyn.d_tag == DT_NEEDED && text && e->nneeded < ELF_NEEDED_MAX)
                e->needed[e->nneeded++] = text;
        }
    }
}

/* Keeps the higher of two version names: "GLIBC_2.34" is higher than "GLIBC_2.5". */
static void keep_highest(char dst[16], const char *name, const char *prefix)
{
    int a[3] = {0}, b[3] = {0};
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9' || strlen(name + n) > 12)
        return;
    int got = sscanf(name + n, "%5d.%5d.%5d", &a[0], &a[1], &a[2]);
    if (got < 1)
        return;
    sscanf(dst, "%5d.%5d.%5d", &b[0], &b[1], &b[2]);
    if (a[0] != b[0] ? a[0] > b[0] : a[1] != b[1] ? a[1] > b[1] : a[2] > b[2] || !dst[0])
        snprintf(dst, 16, "%s", name + n);
}

static void read_versions(struct elf *e, const struct dynamic *d)
{
    Elf64_Verneed need;
    Elf64_Vernaux aux;
    uint64_t at = d->verneed;
    if (at == UINT64_MAX)
        return;
    for (uint64_t i = 0; i < d->nverneed && i < 1024 && take(e, at, &need, sizeof(need)); i++) {
        uint64_t a = at + need.vn_aux;
        for (int k = 0; k < need.vn_cnt && k < 1024 && take(e, a, &aux, sizeof(aux)); k++) {
            const char *name = dynamic_string(e, d, aux.vna_name);
            if (name) {
                keep_highest(e->glibc, name, "GLIBC_");
                keep_highest(e->glibcxx, name, "GLIBCXX_");
            }
            if (!aux.vna_next)
                break;
            a += aux.vna_next;
        }
        if (!need.vn_next)
            break;
        at += need.vn_next;
    }
}

int elf_parse(struct elf *ret, const void *data, size_t len)
{
    struct elf e = {.data = data, .len = len};
    struct dynamic d = {.strtab = UINT64_MAX, .verneed = UINT64_MAX};
    Elf64_Ehdr eh;
    Elf64_Phdr ph;
    if (!header(&e, &eh))
        return -ENOEXEC;
    e.machine = eh.e_machine;
    for (int i = 0; i < eh.e_phnum; i++) {
        if (!segment(&e, &eh, i, &ph))
            return -EINVAL;
        if (ph.p_type == PT_DYNAMIC) {
            read_dynamic(&e, &eh, &ph, &d);
            break;
        }
    }
    read_versions(&e, &d);
    *ret = e;
    return 0;
}

bool elf_section(const struct elf *e, const char *name, const uint8_t **ret, size_t *ret_len)
{
    Elf64_Ehdr eh;
    Elf64_Shdr names, sh;
    if (!header(e, &eh) || eh.e_shentsize < sizeof(sh) || eh.e_shoff > e->len ||
        eh.e_shstrndx >= eh.e_shnum ||
        !take(e, eh.e_shoff + (uint64_t)eh.e_shstrndx * eh.e_shentsize, &names, sizeof(names)) ||
        names.sh_offset > e->len)
        return false;
    for (int i = 0; i < eh.e_shnum; i++) {
        if (!take(e, eh.e_shoff + (uint64_t)i * eh.e_shentsize, &sh, sizeof(sh)))
            return false;
        const char *text = string_at(e, names.sh_offset + sh.sh_name);
        if (!text || strcmp(text, name) != 0 || sh.sh_type == SHT_NOBITS)
            continue;
        if (sh.sh_offset > e->len || sh.sh_size > e->len - sh.sh_offset)
            return false;
        *ret = e->data + sh.sh_offset;
        *ret_len = sh.sh_size;
        return true;
    }
    return false;
}

bool elf_rodata_has(const struct elf *e, const char *text, const char **at, size_t *ret_left)
{
    const uint8_t *data;
    size_t len;
    if (!elf_section(e, ".rodata", &data, &len))
        return false;
    const uint8_t *hit = memmem(data, len, text, strlen(text));
    if (!hit)
        return false;
    if (at) {
        *at = (const char *)hit;
        *ret_left = len - (size_t)(hit - data);
    }
    return true;
}

int elf_map(struct elf *ret, const char *path)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(Elf64_Ehdr))
        return -ENOEXEC;
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return -errno;
    int rc = elf_parse(ret, data, (size_t)st.st_size);
    if (rc < 0)
        munmap(data, (size_t)st.st_size);
    return rc;
}

void elf_unmap(struct elf *e)
{
    if (e->data)
        munmap((void *)e->data, e->len);
    *e = (struct elf){0};
}

int elf_is_ours(const char *path)
{
    unsigned char theirs[20], ours[20];
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    auto_close int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (pread(fd, theirs, sizeof(theirs), 0) != sizeof(theirs) ||
        memcmp(theirs, ELFMAG, SELFMAG) != 0)
        return -ENOEXEC;
    if (self < 0 || pread(self, ours, sizeof(ours), 0) != sizeof(ours))
        return 0; /* without /proc the loader itself has to refuse the file */
    return theirs[EI_CLASS] == ours[EI_CLASS] && memcmp(theirs + 18, ours + 18, 2) == 0 ? 0
                                                                                        : -ENOEXEC;
}
