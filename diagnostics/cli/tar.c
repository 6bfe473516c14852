/* SPDX-License-Identifier: Apache-2.0
 *
 * tar: see tar.h. The format is POSIX.1-2017, pax, "ustar Interchange Format".
 */
#include "diagnostics/cli/tar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 512
#define NAME  100

struct header {
    char name[NAME];
    char mode[8], uid[8], gid[8], size[12], mtime[12], sum[8];
    char type;
    char link[NAME];
    char magic[6], version[2];
    char user[32], group[32];
    char major[8], minor[8];
    char prefix[155];
    char pad[12];
};

_Static_assert(sizeof(struct header) == BLOCK, "one block");

/* Copies up to room bytes. As the format requires, a name that fills its field has no NUL. */
static void put_name(char *dst, const char *src, size_t room)
{
    size_t n = strlen(src);
    memcpy(dst, src, n < room ? n : room);
}

static void put_octal(char *dst, size_t size, uint64_t n)
{
    char text[32];
    snprintf(text, sizeof(text), "%0*" PRIo64, (int)size - 1, n);
    memcpy(dst, text, size - 1);
}

static void pad(struct buf *out, size_t len)
{
    static const char zeros[BLOCK];
    if (len % BLOCK)
        buf_put(out, zeros, BLOCK - len % BLOCK);
}

static void put_header(struct buf *out, char type, const char *name, const char *link, size_t size,
                       int64_t mtime)
{
    struct header h;
    unsigned sum = 0;
    memset(&h, 0, sizeof(h));
    put_name(h.name, name, sizeof(h.name));
    put_name(h.link, link, sizeof(h.link));
    put_octal(h.mode, sizeof(h.mode), type == '5' ? 0755 : 0644);
    put_octal(h.uid, sizeof(h.uid), 0);
    put_octal(h.gid, sizeof(h.gid), 0);
    put_octal(h.size, sizeof(h.size), size);
    put_octal(h.mtime, sizeof(h.mtime), (uint64_t)mtime);
    h.type = type;
    memcpy(h.magic, "ustar", 6);
    memcpy(h.version, "00", 2);
    memset(h.sum, ' ', sizeof(h.sum));
    for (size_t i = 0; i < sizeof(h); i++)
        sum += ((const unsigned char *)&h)[i];
    put_octal(h.sum, sizeof(h.sum) - 1, sum);
    buf_put(out, &h, sizeof(h));
}

/* Writes "LENGTH key=value\n"; LENGTH includes its own digits. */
static void put_record(struct buf *out, const char *key, const char *value)
{
    char digits[24];
    size_t rest = strlen(key) + strlen(value) + 3, total = rest + 1, before = 0;
    while (total != before) {
        before = total;
        total = rest + (size_t)snprintf(digits, sizeof(digits), "%zu", before);
    }
    buf_put(out, digits, strlen(digits));
    buf_put(out, " ", 1);
    buf_put(out, key, strlen(key));
    buf_put(out, "=", 1);
    buf_put(out, value, strlen(value));
    buf_put(out, "\n", 1);
}

static void put_long_names(struct buf *out, const char *path, const char *link, int64_t mtime)
{
    struct buf records = {0};
    if (strlen(path) > NAME)
        put_record(&records, "path", path);
    if (strlen(link) > NAME)
        put_record(&records, "linkpath", link);
    if (records.len) {
        put_header(out, 'x', "././@PaxHeader", "", records.len, mtime);
        buf_put(out, records.data, records.len);
        pad(out, records.len);
    }
    out->failed |= records.failed;
    buf_fini(&records);
}

void tar_put(struct buf *out, char kind, const char *path, const void *bytes, size_t len,
             int64_t mtime)
{
    char link[4096] = "";
    if (kind == 'l')
        snprintf(link, sizeof(link), "%.*s", (int)len, (const char *)bytes);
    put_long_names(out, path, link, mtime);
    if (kind != 'f')
        len = 0;
    put_header(out, kind == 'd' ? '5' : kind == 'l' ? '2' : '0', path, link, len, mtime);
    buf_put(out, bytes, len);
    pad(out, len);
}

void tar_end(struct buf *out)
{
    static const char zeros[2 * BLOCK];
    buf_put(out, zeros, sizeof(zeros));
}
