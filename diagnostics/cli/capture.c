/* SPDX-License-Identifier: Apache-2.0
 *
 * capture: see capture.h.
 *
 * A path was read in one of four ways (machine.h). A file that was read is copied. A name that was
 * only tested for becomes an empty file, and so do the names in a listed folder that nothing else
 * was read of. A file that exists and could not be read becomes a folder: opening it in the replay
 * fails, too.
 *
 * Folders of /sys are mostly links. Where both a link and files behind it were read, the link is
 * kept and the files are placed at its target. Otherwise the path to a file consists of folders.
 */
#include "diagnostics/cli/capture.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "diagnostics/cli/words.h"
#include "diagnostics/report/text.h"

#define LINKS_MAX 40

static void on_look(void *arg, char kind, const char *path)
{
    struct capture *c = arg;
    if (c->nlooks == c->looks_cap) {
        size_t cap = c->looks_cap ? 2 * c->looks_cap : 256;
        struct look *grown = reallocarray(c->looks, cap, sizeof(*grown));
        if (!grown) {
            c->failed = true;
            return;
        }
        c->looks = grown;
        c->looks_cap = cap;
    }
    while (*path == '/')
        path++;
    c->looks[c->nlooks] = (struct look){.kind = kind, .path = strdup(path)};
    if (c->looks[c->nlooks].path)
        c->nlooks++;
    else
        c->failed = true;
}

void capture_start(struct capture *c, struct machine *m, const struct redact *redact)
{
    *c = (struct capture){.machine = m, .redact = redact};
    m->record = on_look;
    m->record_arg = c;
}

static int look_order(const void *a, const void *b)
{
    const struct look *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    return order ? order : x->kind - y->kind;
}

static void sort_looks(struct capture *c)
{
    size_t n = 0;
    if (c->nlooks)
        qsort(c->looks, c->nlooks, sizeof(*c->looks), look_order);
    for (size_t i = 0; i < c->nlooks; i++) {
        if (n && look_order(&c->looks[n - 1], &c->looks[i]) == 0)
            free(c->looks[i].path);
        else
            c->looks[n++] = c->looks[i];
    }
    c->nlooks = n;
}

/* The index of the first recorded path that does not sort before path. */
static size_t lower_bound(const struct capture *c, const char *path)
{
    size_t lo = 0, hi = c->nlooks;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(c->looks[mid].path, path) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool looked(const struct capture *c, const char *path, char kind)
{
    for (size_t i = lower_bound(c, path); i < c->nlooks && strcmp(c->looks[i].path, path) == 0; i++)
        if (c->looks[i].kind == kind)
            return true;
    return false;
}

/* Returns true if a check read something below this path. */
static bool is_parent(const struct capture *c, const char *path)
{
    char below[PATH_MAX];
    int n = snprintf(below, sizeof(below), "%s/", path);
    size_t i = lower_bound(c, below);
    return n < (int)sizeof(below) && i < c->nlooks &&
           strncmp(c->looks[i].path, below, (size_t)n) == 0;
}

/* ---- entries -------------------------------------------------------------------------------- */

void capture_add(struct capture *c, char kind, const char *path, struct buf *clean)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 256;
        struct captured *grown = reallocarray(c->entries, cap, sizeof(*grown));
        if (!grown) {
            c->failed = true;
            buf_fini(clean);
            return;
        }
        c->entries = grown;
        c->cap = cap;
    }
    struct captured *e = &c->entries[c->n];
    *e = (struct captured){
        .path = strdup(path), .kind = kind, .bytes = (char *)clean->data, .len = clean->len};
    c->failed |= clean->failed || !e->path;
    c->bytes += e->len;
    c->n++;
    *clean = (struct buf){0};
}

void capture_put(struct capture *c, char kind, const char *path, const void *bytes, size_t len)
{
    struct buf clean = {0};
    if (len)
        redact_text(c->redact, bytes, len, &clean);
    capture_add(c, kind, path, &clean);
}

/* Joins "a/b" and "../c" to "a/c"; false when the result leaves the root or does not fit. */
static bool join(char *dst, size_t size, const char *folder, const char *more)
{
    char text[2 * PATH_MAX];
    size_t n = 0;
    char *save = NULL;
    if (snprintf(text, sizeof(text), "%s/%s", *more == '/' ? "" : folder, more) >=
        (int)sizeof(text))
        return false;
    *dst = '\0';
    for (char *word = strtok_r(text, "/", &save); word; word = strtok_r(NULL, "/", &save)) {
        if (strcmp(word, ".") == 0)
            continue;
        if (strcmp(word, "..") == 0) {
            char *slash = strrchr(dst, '/');
            if (n == 0)
                return false;
            n = slash ? (size_t)(slash - dst) : 0;
            dst[n] = '\0';
            continue;
        }
        int added = snprintf(dst + n, size - n, "%s%s", n ? "/" : "", word);
        if (added < 0 || n + (size_t)added >= size)
            return false;
        n += (size_t)added;
    }
    return true;
}

static bool is_kept(const struct capture *c, const char *path)
{
    for (size_t i = 0; i < c->nlinks; i++) {
        if (c->links[i] && strcmp(c->links[i], path) == 0)
            return true;
    }
    return false;
}

/* The target of the link at path, in the captured tree; false when the link is not kept.
 * Absolute links are not followed: they would lead out of the captured tree. */
static bool follow(const struct capture *c, const char *path, char dst[PATH_MAX])
{
    char target[PATH_MAX], folder[PATH_MAX];
    if (!is_kept(c, path))
        return false;
    ssize_t n = readlinkat(c->machine->root, path, target, sizeof(target) - 1);
    if (n <= 0 || target[0] == '/')
        return false;
    target[n] = '\0';
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    *(slash ? slash : folder) = '\0';
    return join(dst, PATH_MAX, folder, target);
}

/* Replaces the first kept link on the path by its target, in place. last: the path's last
 * component counts, too. Returns false when there is none. */
static bool step(const struct capture *c, char way[PATH_MAX], bool last)
{
    char head[PATH_MAX], to[PATH_MAX];
    for (size_t n = strcspn(way, "/");; n += 1 + strcspn(way + n + 1, "/")) {
        bool end = way[n] == '\0';
        if (end && !last)
            return false;
        snprintf(head, sizeof(head), "%.*s", (int)n, way);
        if (follow(c, head, to))
            return join(head, sizeof(head), to, way + n + !end) && join(way, PATH_MAX, "", head);
        if (end)
            return false;
    }
}

/* Where a path is placed in the tree, with all kept links on the way resolved. link: the path is
 * itself a link and keeps its own place. */
static bool place(const struct capture *c, const char *path, bool link, char dst[PATH_MAX])
{
    if (!join(dst, PATH_MAX, "", path))
        return false;
    for (int links = 0; links < LINKS_MAX; links++) {
        if (!step(c, dst, !link))
            return true;
    }
    return false;
}

static void put_placed(struct capture *c, char kind, const char *path, const void *bytes,
                       size_t len)
{
    char at[PATH_MAX], full[PATH_MAX + 8];
    if (!place(c, path, kind == 'l', at))
        return;
    snprintf(full, sizeof(full), *at ? "root/%s" : "root", at);
    capture_put(c, kind, full, bytes, len);
}

/* Captures a link; false when the path is not a link. */
static bool put_link(struct capture *c, const char *path)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(c->machine->root, path, target, sizeof(target));
    if (n <= 0 || (size_t)n >= sizeof(target))
        return false;
    put_placed(c, 'l', path, target, (size_t)n);
    return true;
}

/* Decides which links are kept: those that were read as links. Outer folders come first, because
 * their links decide where the inner ones are placed. */
static void keep_links(struct capture *c)
{
    char at[PATH_MAX], target[8];
    c->links = calloc(c->nlooks + 1, sizeof(*c->links));
    for (size_t i = 0; c->links && i < c->nlooks; i++) {
        if (c->looks[i].kind != 'l' ||
            readlinkat(c->machine->root, c->looks[i].path, target, sizeof(target)) <= 0 ||
            !place(c, c->looks[i].path, true, at) || is_kept(c, at))
            continue;
        char *copy = strdup(at);
        if (copy)
            c->links[c->nlinks++] = copy;
        c->failed |= !copy;
    }
    c->failed |= !c->links;
}

static void put_file(struct capture *c, const char *path)
{
    auto_free char *text = NULL;
    size_t len = 0;
    int rc = machine_read(c->machine, path, &text, &len);
    if (rc == 0)
        put_placed(c, 'f', path, text, len);
    else if (rc != -ENOENT && rc != -ENOTDIR)
        put_placed(c, 'd', path, NULL, 0);
}

/* Captures a name whose content was not read: its kind, with empty content. */
static void put_name(struct capture *c, const char *path, bool keep_link)
{
    struct stat st;
    if (looked(c, path, 'l') && put_link(c, path))
        return;
    int flags = keep_link && !is_parent(c, path) ? AT_SYMLINK_NOFOLLOW : 0;
    if (fstatat(c->machine->root, path, &st, flags) < 0 &&
        fstatat(c->machine->root, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISLNK(st.st_mode) && keep_link)
        put_link(c, path);
    else
        put_placed(c, S_ISDIR(st.st_mode) ? 'd' : 'f', path, NULL, 0);
}

static void put_folder(struct capture *c, const char *path)
{
    auto_free char **names = NULL;
    size_t n = 0;
    int rc = machine_list(c->machine, path, &names, &n);
    if (rc < 0)
        return;
    put_placed(c, 'd', path, NULL, 0);
    for (size_t i = 0; i < n && i < CAPTURE_NAMES; i++) {
        char below[PATH_MAX];
        if (snprintf(below, sizeof(below), "%s%s%s", path, *path ? "/" : "", names[i]) <
            (int)sizeof(below))
            put_name(c, below, true);
    }
}

static void put_look(struct capture *c, const struct look *look)
{
    switch (look->kind) {
    case 'f':
        put_file(c, look->path);
        break;
    case 'd':
        put_folder(c, look->path);
        break;
    case 'l':
        put_link(c, look->path);
        break;
    default:
        put_name(c, look->path, false);
    }
}

static void put_answers(struct capture *c)
{
    for (size_t i = 0; i < c->machine->nanswers; i++) {
        struct buf text = {0};
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "answers/%s", c->machine->answers[i].probe);
        answer_write(&c->machine->answers[i].answer, &text);
        capture_put(c, 'f', path, text.data, text.len);
        c->failed |= text.failed;
        buf_fini(&text);
    }
}

/* Captures the options with which --root DIR runs the same checks. */
static void put_options(struct capture *c, const struct setting *s)
{
    struct buf text = {0};
    char profiles[64];
    text_put(&text, "--profile=%s\n--local-ranks=%d\n--level=%d\n",
             words_profiles(s->profiles, profiles, sizeof(profiles)), s->local_ranks, s->level);
    if (s->ranks)
        text_put(&text, "--ranks=%d\n", s->ranks);
    if (s->gpus >= 0)
        text_put(&text, "--gpus=%d\n", s->gpus);
    if (s->data_dir && !strpbrk(s->data_dir, " \t\n"))
        text_put(&text, "--data=%s\n", s->data_dir);
    if (s->interfaces && *s->interfaces && !strpbrk(s->interfaces, " \t\n"))
        text_put(&text, "--network-interfaces=%s\n", s->interfaces);
    capture_put(c, 'f', "options", text.data, text.len);
    c->failed |= text.failed;
    buf_fini(&text);
}

int capture_files(struct capture *c, const struct setting *s, struct err *err)
{
    struct setting again;
    static const char kinds[] =
        "lfde"; /* the most telling kind first: the first entry of a path is kept */
    setting_guess(&again, c->machine); /* files that the guess reads belong to the capture, too */
    c->machine->record = NULL;
    sort_looks(c);
    keep_links(c);
    capture_put(c, 'f', "root/proc/self/environ", c->machine->environ_text,
                c->machine->environ_len);
    for (const char *kind = kinds; *kind; kind++) {
        for (size_t i = 0; i < c->nlooks && c->bytes <= CAPTURE_MAX; i++) {
            if (c->looks[i].kind == *kind)
                put_look(c, &c->looks[i]);
        }
    }
    put_answers(c);
    put_options(c, s);
    capture_sort(c);
    if (c->failed)
        return err_set(err, ENOMEM, "no memory for the captured files");
    return c->bytes > CAPTURE_MAX
               ? err_set(err, EFBIG, "the captured files are larger than %u MiB", CAPTURE_MAX >> 20)
               : 0;
}

/* Sorts '/' before all other bytes: a folder's files follow it directly. */
static int path_order(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    int x = *a == '/' ? 1 : *a ? (unsigned char)*a + 2 : 0;
    int y = *b == '/' ? 1 : *b ? (unsigned char)*b + 2 : 0;
    return x - y;
}

struct numbered {
    struct captured entry;
    size_t i;
};

static int entry_order(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    int order = path_order(x->entry.path, y->entry.path);
    return order ? order : x->i < y->i ? -1 : 1;
}

static void entry_fini(struct captured *e)
{
    free(e->path);
    free(e->bytes);
}

/* Returns whether next is below at, although at was not captured as a folder. */
static bool is_below(const struct captured *at, const struct captured *next)
{
    size_t n = strlen(at->path);
    return at->kind != 'd' && strncmp(at->path, next->path, n) == 0 && next->path[n] == '/';
}

void capture_sort(struct capture *c)
{
    auto_free struct numbered *all = calloc(c->n + 1, sizeof(*all));
    size_t n = 0;
    if (!all || c->failed) {
        c->failed = true;
        return;
    }
    for (size_t i = 0; i < c->n; i++)
        all[i] = (struct numbered){.entry = c->entries[i], .i = i};
    qsort(all, c->n, sizeof(*all), entry_order);
    for (size_t i = 0; i < c->n; i++) {
        struct captured *last = n ? &c->entries[n - 1] : NULL;
        if (last && strcmp(last->path, all[i].entry.path) == 0) {
            entry_fini(&all[i].entry);
        } else if (last && is_below(last, &all[i].entry)) {
            /* an empty file or a link was captured for a path that has files below it: it is a
             * folder */
            last->kind = 'd';
            last->len = 0;
            c->entries[n++] = all[i].entry;
        } else {
            c->entries[n++] = all[i].entry;
        }
    }
    c->n = n;
}

void capture_fini(struct capture *c)
{
    if (c->machine)
        c->machine->record = NULL;
    for (size_t i = 0; i < c->nlooks; i++)
        free(c->looks[i].path);
    for (size_t i = 0; i < c->n; i++)
        entry_fini(&c->entries[i]);
    for (size_t i = 0; i < c->nlinks; i++)
        free(c->links[i]);
    free(c->links);
    free(c->looks);
    free(c->entries);
    memset(c, 0, sizeof(*c));
}
