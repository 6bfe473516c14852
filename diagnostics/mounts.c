/* SPDX-License-Identifier: Apache-2.0
 *
 * mounts: see mounts.h. A line: id parent major:minor root point options [tags] - type source super
 */
#include "diagnostics/mounts.h"

#include <string.h>

/* Copies a field up to the next blank to dst, with escapes such as \040 decoded. Returns the
 * beginning of the next field; NULL when there is no field. *ret_cut: it did not fit. */
static const char *field(const char *s, const char *end, char *dst, size_t size, bool *ret_cut)
{
    size_t n = 0;
    if (s >= end || *s == ' ')
        return NULL;
    *ret_cut = false;
    while (s < end && *s != ' ') {
        char c = *s++;
        if (c == '\\' && end - s >= 3 && s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' &&
            s[2] >= '0' && s[2] <= '7') {
            c = (char)((s[0] - '0') * 64 + (s[1] - '0') * 8 + (s[2] - '0'));
            s += 3;
        }
        if (n + 1 < size)
            dst[n++] = c;
        else
            *ret_cut = true;
    }
    dst[n] = '\0';
    return s < end ? s + 1 : s;
}

static const char *skip(const char *s, const char *end)
{
    char ignored[4];
    bool cut;
    return s ? field(s, end, ignored, sizeof(ignored), &cut) : NULL;
}

static bool parse(const char *s, const char *end, struct mount *ret)
{
    bool cut_root = false, cut_point = false, cut = false;
    s = skip(skip(skip(s, end), end), end);
    s = s ? field(s, end, ret->root, sizeof(ret->root), &cut_root) : NULL;
    s = s ? field(s, end, ret->point, sizeof(ret->point), &cut_point) : NULL;
    s = s ? field(s, end, ret->options, sizeof(ret->options), &cut) : NULL;
    while (s && !(end - s >= 2 && s[0] == '-' && s[1] == ' '))
        s = skip(s, end);
    s = s ? skip(s, end) : NULL;
    s = s ? field(s, end, ret->type, sizeof(ret->type), &cut) : NULL;
    s = s ? field(s, end, ret->source, sizeof(ret->source), &cut) : NULL;
    ret->super[0] = '\0';
    if (s)
        field(s, end, ret->super, sizeof(ret->super), &cut);
    return s && !cut_root && !cut_point && ret->point[0] == '/';
}

bool mounts_next(const char **text, struct mount *ret)
{
    while (**text) {
        const char *line = *text, *end = strchrnul(line, '\n');
        *text = *end ? end + 1 : end;
        if (parse(line, end, ret))
            return true;
    }
    return false;
}

bool mounts_of(const char *text, const char *path, struct mount *ret)
{
    struct mount m;
    size_t best = 0;
    while (mounts_next(&text, &m)) {
        size_t len = strlen(m.point);
        bool root = len == 1;
        if (strncmp(path, m.point, len) != 0 || (!root && path[len] && path[len] != '/') ||
            len < best)
            continue;
        best = len;
        *ret = m;
    }
    return best > 0;
}

bool mount_has(const char *options, const char *word)
{
    size_t len = strlen(word);
    for (const char *s = options; *s;) {
        const char *end = strchrnul(s, ',');
        if ((size_t)(end - s) == len && strncmp(s, word, len) == 0)
            return true;
        s = *end ? end + 1 : end;
    }
    return false;
}

bool mount_is_remote(const struct mount *m)
{
    static const char *const types[] = {
        "nfs",      "nfs4",  "cifs",  "smb3",      "ceph",  "lustre",   "gpfs",
        "beegfs",   "afs",   "9p",    "glusterfs", "pvfs2", "orangefs", "wekafs",
        "virtiofs", "panfs", "fhgfs", "fuseblk",   "fuse",  "ocfs2",    "gfs2"};
    if (strncmp(m->type, "fuse.", 5) == 0)
        return strcmp(m->type, "fuse.lxcfs") != 0;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(m->type, types[i]) == 0)
            return true;
    return false;
}
