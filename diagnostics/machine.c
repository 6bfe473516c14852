/* SPDX-License-Identifier: Apache-2.0
 *
 * machine: see machine.h.
 */
#include "diagnostics/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/cleanup.h"

static void note(const struct machine *m, char kind, const char *path)
{
    if (m->record)
        m->record(m->record_arg, kind, path);
}

/* Opens a path of a captured machine. Its files are untrusted, so links must not lead out of the
 * root. */
static int open_inside(int root, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags, .resolve = RESOLVE_IN_ROOT};
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    return fd < 0 && (errno == ENOSYS || errno == EPERM) ? openat(root, path, flags) : fd;
}

/* Opens without blocking: a FIFO or device at this path must not block the doctor. */
static int open_at(const struct machine *m, const char *path, int flags)
{
    path = *path ? path : ".";
    flags |= O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = m->live ? openat(m->root, path, flags) : open_inside(m->root, path, flags);
    return fd < 0 ? -errno : fd;
}

int machine_read(const struct machine *m, const char *path, char **ret, size_t *ret_len)
{
    note(m, 'f', path);
    auto_close int fd = open_at(m, path, 0);
    if (fd < 0)
        return fd;
    size_t cap = 4096, len = 0;
    char *text = malloc(cap + 1);
    while (text) {
        ssize_t n = read(fd, text + len, cap - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int rc = -errno;
            free(text);
            return rc;
        }
        len += (size_t)n;
        if (n == 0 || len == MACHINE_FILE_MAX)
            break;
        if (len < cap)
            continue;
        char *grown = realloc(text, 2 * cap + 1);
        if (!grown)
            free(text);
        text = grown;
        cap *= 2;
    }
    if (!text)
        return -ENOMEM;
    text[len] = '\0';
    *ret = text;
    if (ret_len)
        *ret_len = len;
    return 0;
}

#define FORMAT_PATH(path, fmt)                                                                     \
    do {                                                                                           \
        va_list ap_;                                                                               \
        va_start(ap_, fmt);                                                                        \
        vsnprintf(path, sizeof(path), fmt, ap_);                                                   \
        va_end(ap_);                                                                               \
    } while (0)

static void copy_trimmed(char *dst, size_t size, const char *src, size_t len)
{
    while (len && isspace((unsigned char)*src)) {
        src++;
        len--;
    }
    while (len && isspace((unsigned char)src[len - 1]))
        len--;
    if (len >= size)
        len = size - 1;
    memcpy(dst, src, len);
    dst[len] = '\0';
}

int machine_line(const struct machine *m, char *dst, size_t size, const char *fmt, ...)
{
    char path[PATH_MAX];
    auto_free char *text = NULL;
    FORMAT_PATH(path, fmt);
    *dst = '\0';
    int rc = machine_read(m, path, &text, NULL);
    if (rc < 0)
        return rc;
    copy_trimmed(dst, size, text, strcspn(text, "\n"));
    return 0;
}

/* "max" and values beyond 63 bits become INT64_MAX; cgroup v1 writes "no limit" as such a value. */
static int parse_int(const char *word, int64_t *ret)
{
    char *end = NULL;
    if (strcmp(word, "max") == 0) {
        *ret = INT64_MAX;
        return 0;
    }
    /* saturates, as wanted */
    long long n = strtoll(word, &end, 10);
    if (end == word || (*end && !isspace((unsigned char)*end)))
        return -EINVAL;
    *ret = n;
    return 0;
}

int machine_int(const struct machine *m, int64_t *ret, const char *fmt, ...)
{
    char path[PATH_MAX], line[64];
    FORMAT_PATH(path, fmt);
    int rc = machine_line(m, line, sizeof(line), "%s", path);
    return rc < 0 ? rc : parse_int(line, ret);
}

int machine_field(const struct machine *m, const char *path, const char *key, char *dst,
                  size_t size)
{
    auto_free char *text = NULL;
    size_t klen = strlen(key);
    *dst = '\0';
    int rc = machine_read(m, path, &text, NULL);
    if (rc < 0)
        return rc;
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n"), at = klen;
        if (len > klen && strncmp(line, key, klen) == 0 && strchr(": \t", line[klen])) {
            while (at < len && strchr(": \t", line[at]))
                at++;
            copy_trimmed(dst, size, line + at, len - at);
            return 0;
        }
        line += len + (line[len] == '\n');
    }
    return -ENOENT;
}

int machine_field_int(const struct machine *m, const char *path, const char *key, int64_t *ret)
{
    char value[64];
    int rc = machine_field(m, path, key, value, sizeof(value));
    return rc < 0 ? rc : parse_int(value, ret);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Packs the names behind the array of pointers, so that one free() releases all. */
static char **pack(char **names, size_t n, size_t bytes)
{
    char **packed = malloc((n + 1) * sizeof(*packed) + bytes);
    if (!packed)
        return NULL;
    char *text = (char *)(packed + n + 1);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]) + 1;
        packed[i] = memcpy(text, names[i], len);
        text += len;
    }
    packed[n] = NULL;
    return packed;
}

static int read_names(DIR *dir, char ***ret, size_t *ret_n)
{
    char **names = NULL;
    size_t n = 0, cap = 0, bytes = 0;
    int rc = 0;
    for (struct dirent *d; rc == 0 && (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (n == cap) {
            char **grown = reallocarray(names, cap ? 2 * cap : 32, sizeof(*names));
            if (!grown) {
                rc = -ENOMEM;
                break;
            }
            names = grown;
            cap = cap ? 2 * cap : 32;
        }
        names[n] = strdup(d->d_name);
        if (!names[n])
            rc = -ENOMEM;
        else
            bytes += strlen(names[n++]) + 1;
    }
    if (rc == 0) {
        if (n)
            qsort(names, n, sizeof(*names), by_name);
        *ret = pack(names, n, bytes);
        rc = *ret ? 0 : -ENOMEM;
        if (ret_n)
            *ret_n = n;
    }
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return rc;
}

int machine_list(const struct machine *m, const char *path, char ***ret, size_t *ret_n)
{
    note(m, 'd', path);
    int fd = open_at(m, path, O_DIRECTORY);
    if (fd < 0)
        return fd;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -ENOMEM;
    }
    int rc = read_names(dir, ret, ret_n);
    closedir(dir);
    return rc;
}

bool machine_exists(const struct machine *m, const char *fmt, ...)
{
    char path[PATH_MAX];
    struct stat st;
    FORMAT_PATH(path, fmt);
    note(m, 'e', path);
    return fstatat(m->root, path, &st, 0) == 0 ||
           fstatat(m->root, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int machine_readlink(const struct machine *m, const char *path, char *dst, size_t size)
{
    note(m, 'l', path);
    ssize_t n = readlinkat(m->root, path, dst, size - 1);
    int rc = n < 0 ? -errno : 0;
    dst[n < 0 ? 0 : n] = '\0';
    return rc;
}

/* ---- environment ---- */

const char *machine_env(const struct machine *m, const char *name)
{
    size_t len = strlen(name);
    const char *entry;
    for (size_t i = 0; (entry = machine_env_at(m, i)); i++) {
        if (strncmp(entry, name, len) == 0 && entry[len] == '=')
            return entry + len + 1;
    }
    return NULL;
}

const char *machine_env_at(const struct machine *m, size_t i)
{
    const char *p = m->environ_text, *end = p ? p + m->environ_len : p;
    for (; p < end; p += strlen(p) + 1) {
        if (*p && i-- == 0)
            return p;
    }
    return NULL;
}

/* ---- open and close ---- */

const struct answer *machine_answer(const struct machine *m, const char *probe)
{
    static const struct answer absent = {.state = ANSWER_ABSENT};
    for (size_t i = 0; i < m->nanswers; i++) {
        if (strcmp(m->answers[i].probe, probe) == 0)
            return &m->answers[i].answer;
    }
    return &absent;
}

/* Copies libc's environment: /proc/self/environ shows only the one at the program's start. */
static int copy_environment(struct machine *m)
{
    size_t len = 0;
    for (char **e = environ; e && *e; e++)
        len += strlen(*e) + 1;
    m->environ_text = malloc(len + 1);
    if (!m->environ_text)
        return -ENOMEM;
    for (char **e = environ; e && *e; e++) {
        size_t n = strlen(*e) + 1;
        memcpy(m->environ_text + m->environ_len, *e, n);
        m->environ_len += n;
    }
    return 0;
}

int machine_open_live(struct machine *m, struct err *err)
{
    memset(m, 0, sizeof(*m));
    m->live = true;
    m->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (m->root < 0)
        return err_sys(err, errno, "/");
    if (copy_environment(m) < 0) {
        machine_close(m);
        return err_set(err, ENOMEM, "no memory for the environment");
    }
    return 0;
}

static int read_answers(struct machine *m, const char *dir, struct err *err)
{
    auto_free char **names = NULL;
    size_t n = 0;
    struct machine base = {.root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    auto_close int root = base.root;
    if (root < 0 || machine_list(&base, "answers", &names, &n) < 0)
        return 0;
    m->answers = calloc(n + 1, sizeof(*m->answers));
    if (!m->answers)
        return err_set(err, ENOMEM, "no memory for %zu answers", n);
    for (size_t i = 0; i < n; i++) {
        char path[NAME_MAX + 16];
        auto_free char *text = NULL;
        size_t len = 0;
        snprintf(path, sizeof(path), "answers/%s", names[i]);
        if (machine_read(&base, path, &text, &len) < 0)
            continue;
        struct machine_answer *a = &m->answers[m->nanswers];
        a->probe = strdup(names[i]);
        if (!a->probe)
            return err_set(err, ENOMEM, "no memory for %zu answers", n);
        answer_parse(&a->answer, text, len);
        m->nanswers++;
    }
    return 0;
}

int machine_open_captured(struct machine *m, const char *dir, struct err *err)
{
    char path[PATH_MAX];
    memset(m, 0, sizeof(*m));
    snprintf(path, sizeof(path), "%s/root", dir);
    m->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (m->root < 0)
        return err_sys(err, errno, "%s", path);
    if (machine_read(m, "proc/self/environ", &m->environ_text, &m->environ_len) < 0)
        m->environ_text = NULL;
    int rc = read_answers(m, dir, err);
    if (rc < 0)
        machine_close(m);
    return rc;
}

void machine_close(struct machine *m)
{
    if (m->root > 0)
        close(m->root);
    free(m->environ_text);
    for (size_t i = 0; i < m->nanswers; i++) {
        answer_fini(&m->answers[i].answer);
        free(m->answers[i].probe);
    }
    free(m->answers);
    memset(m, 0, sizeof(*m));
    m->root = -1;
}
