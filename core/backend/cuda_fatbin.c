/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_fatbin: see cuda_fatbin.h.
 */
#include "core/backend/cuda_fatbin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC 0xba55ed50u
enum { PTX = 1, CODE = 2 };

struct head {
    uint32_t magic;
    uint16_t version, head_size;
    uint64_t size; /* bytes of all parts */
};

struct part {
    uint16_t kind, unknown;
    uint32_t head_size;
    uint64_t size; /* bytes of the part, without its head */
    uint32_t packed_size, unknown2;
    uint16_t minor, major;
    uint32_t sm;
};

/* Finds where the parts begin and end. -EINVAL: not a file of kernels, or it is cut off. */
static int find_parts(const uint8_t *bytes, size_t n, size_t *ret_begin, size_t *ret_end,
                      struct err *err)
{
    struct head head;
    if (n < sizeof(head))
        return err_set(err, EINVAL, "%zu bytes are too short for a file of kernels", n);
    memcpy(&head, bytes, sizeof(head));
    if (head.magic != MAGIC || head.head_size < sizeof(head) || head.head_size > n)
        return err_set(err, EINVAL, "not a file of kernels: it begins with 0x%08x", head.magic);
    if (head.size > n - head.head_size)
        return err_set(err, EINVAL, "%zu bytes of kernels, the file says %llu", n - head.head_size,
                       (unsigned long long)head.size);
    *ret_begin = head.head_size;
    *ret_end = head.head_size + head.size;
    return 0;
}

int cuda_fatbin_next(const void *bytes, size_t n, size_t *at, struct cuda_fatbin_part *ret,
                     struct err *err)
{
    size_t begin = 0, end = 0;
    struct part part;
    int rc = find_parts(bytes, n, &begin, &end, err);
    if (rc < 0)
        return rc;
    if (*at < begin)
        *at = begin;
    for (; *at < end; *at = ret->at + ret->n) {
        if (end - *at < sizeof(part))
            return err_set(err, EINVAL, "the file of kernels ends inside of a part");
        memcpy(&part, (const uint8_t *)bytes + *at, sizeof(part));
        if (part.head_size < sizeof(part) || part.head_size > end - *at ||
            part.size > end - *at - part.head_size)
            return err_set(err, EINVAL, "a part of the file of kernels does not fit into it");
        *ret = (struct cuda_fatbin_part){part.kind == PTX, part.sm, *at + part.head_size,
                                         (size_t)part.size};
        if (part.kind != PTX && part.kind != CODE)
            continue;
        *at = ret->at + ret->n;
        return 1;
    }
    return 0;
}

static void add(char *dst, size_t size, const char *word, unsigned sm)
{
    size_t n = strlen(dst);
    snprintf(dst + n, size - n, "%s%s%u", n ? (*word == 'P' ? ", " : " ") : "", word, sm);
}

int cuda_fatbin_text(const void *bytes, size_t n, char *dst, size_t size, struct err *err)
{
    struct cuda_fatbin_part part;
    char text[512] = "";
    for (int ptx = 0; ptx < 2; ptx++) {
        int rc;
        for (size_t at = 0; (rc = cuda_fatbin_next(bytes, n, &at, &part, err)) > 0;)
            if (part.ptx == ptx)
                add(text, sizeof(text), ptx ? "PTX of sm_" : "sm_", part.sm);
        if (rc < 0)
            return rc;
    }
    snprintf(dst, size, "%s", text);
    return 0;
}
