/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs: see jobs.h.
 */
#include "agent/jobs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/json/json.h"

#define PREFIX      "hvdrun-"
#define BASES       5
#define BASE_MAX    60 /* the path of a Unix socket is limited to 108 bytes */
#define FILE_MAX    65536
#define PROGRAM_MAX 40
#define LOCK_MS     1000

void jobs_path(char *dst, size_t size, const char *dir, const char *file)
{
    snprintf(dst, size, "%s/%s", dir, file);
}

/* Lists the directories that may hold private directories, in order of preference. Only
 * HVD_RUN_DIR, if set. run is a buffer for one of the paths. */
static size_t list_bases(const char *bases[BASES], char *run, size_t size)
{
    const char *own = getenv("HVD_RUN_DIR");
    snprintf(run, size, "/run/user/%u", (unsigned)geteuid());
    /* The last is only searched for jobs: hvdrun may have had an XDG_RUNTIME_DIR that this shell
     * lacks. */
    const char *all[BASES] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp", "/dev/shm", run};
    bases[0] = own;
    if (own && *own)
        return 1;
    memcpy(bases, all, sizeof(all));
    return BASES;
}

const char *jobs_base(void)
{
    const char *bases[BASES];
    char run[64];
    size_t n = list_bases(bases, run, sizeof(run));
    for (size_t i = 0; i < n && bases[i] != run; i++)
        if (bases[i] && bases[i][0] == '/' && strlen(bases[i]) <= BASE_MAX &&
            access(bases[i], W_OK | X_OK) == 0)
            return bases[i];
    return NULL;
}

/* ---- jobs that exist ------------------------------------------------------------------------- */

/* Replaces control characters, for a terminal: a command may contain any bytes. */
static void copy_printable(char *dst, size_t size, const char *src)
{
    snprintf(dst, size, "%s", src);
    for (char *p = dst; *p; p++)
        if (iscntrl((unsigned char)*p))
            *p = ' ';
}

int jobs_entry_read(const char *text, size_t len, struct job_entry *ret, struct err *err)
{
    auto_json json_t *j = NULL;
    const char *name = "", *command = "";
    json_int_t started = 0;
    int pid = 0;
    int rc = json_read(text, len, "the file of a job", &j, err);
    if (rc == 0)
        rc = json_expect(j, "the file of a job", err, "{s:s, s:i, s:I, s:s}", "name", &name, "pid",
                         &pid, "started", &started, "command", &command);
    if (rc < 0)
        return rc;
    if (!*name || strlen(name) >= sizeof(ret->name))
        return err_set(err, EINVAL, "the file of a job: want a name of 1 to %zu bytes",
                       sizeof(ret->name) - 1);
    copy_printable(ret->name, sizeof(ret->name), name);
    copy_printable(ret->command, sizeof(ret->command), command);
    ret->pid = pid;
    ret->started = started;
    return 0;
}

/* Does an hvdrun listen on the socket? Unlike a pid, this also works for a process of another
 * container. */
static bool listens(const char *dir)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(dir) + sizeof("/sock") > sizeof(addr.sun_path))
        return false;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%.100s/sock", dir);
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* EAGAIN: it listens, but its queue is full. */
    return fd >= 0 && (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EAGAIN);
}

static int add_entry(struct jobs *jobs, const char *base, const char *name, struct err *err)
{
    struct job_entry entry = {0};
    char path[JOBS_DIR_MAX + 16];
    auto_free char *text = NULL;
    struct stat st;
    size_t len;
    if (snprintf(entry.dir, sizeof(entry.dir), "%s/%s", base, name) >= (int)sizeof(entry.dir) ||
        lstat(entry.dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    if (st.st_uid != geteuid()) {
        jobs->others++; /* any user may make such a directory */
        return 0;
    }
    jobs_path(path, sizeof(path), entry.dir, "job");
    if (fd_read_file(path, FILE_MAX, &text, &len) < 0 ||
        jobs_entry_read(text, len, &entry, NULL) < 0)
        return 0;
    entry.gone = !listens(entry.dir);
    struct job_entry *grown = realloc(jobs->list, (size_t)(jobs->n + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for a list of jobs");
    jobs->list = grown;
    jobs->list[jobs->n++] = entry;
    return 0;
}

static int add_base(struct jobs *jobs, const char *base, struct err *err)
{
    DIR *d = opendir(base);
    int rc = 0;
    if (!d)
        return 0;
    for (struct dirent *e; rc == 0 && (e = readdir(d));)
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0)
            rc = add_entry(jobs, base, e->d_name, err);
    closedir(d);
    return rc;
}

static int by_start(const void *a, const void *b)
{
    const struct job_entry *x = a, *y = b;
    return x->started != y->started ? (x->started < y->started ? -1 : 1) : strcmp(x->dir, y->dir);
}

int jobs_find(struct jobs *ret, struct err *err)
{
    char run[64];
    const char *bases[BASES];
    struct stat seen[BASES];
    struct jobs jobs = {0};
    size_t nseen = 0, n = list_bases(bases, run, sizeof(run));
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct stat st;
        bool again = false;
        if (!bases[i] || bases[i][0] != '/' || stat(bases[i], &st) < 0)
            continue;
        for (size_t k = 0; k < nseen; k++)
            again |= seen[k].st_dev == st.st_dev && seen[k].st_ino == st.st_ino;
        seen[nseen++] = st;
        rc = again ? 0 : add_base(&jobs, bases[i], err);
    }
    if (rc < 0) {
        jobs_fini(&jobs);
        return rc;
    }
    if (jobs.n > 1)
        qsort(jobs.list, (size_t)jobs.n, sizeof(*jobs.list), by_start);
    *ret = jobs;
    return 0;
}

void jobs_fini(struct jobs *jobs)
{
    free(jobs->list);
    *jobs = (struct jobs){0};
}

const struct job_entry *jobs_get(const struct jobs *jobs, const char *name)
{
    for (int i = 0; i < jobs->n; i++)
        if (!jobs->list[i].gone && strcmp(jobs->list[i].name, name) == 0)
            return &jobs->list[i];
    return NULL;
}

/* ---- names ---------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool is_interpreter(const char *name)
{
    const char *const known[] = {"python", "sh", "bash", "env", "perl"};
    size_t n = strcspn(name, "0123456789.");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i]) == n && strncmp(name, known[i], n) == 0)
            return true;
    return false;
}

void jobs_program(char *const *argv, char *dst, size_t size)
{
    const char *name = base_name(argv[0]);
    for (char *const *word = argv; *word && is_interpreter(base_name(*word));) {
        do {
            word++;
        } while (*word && (strchr(*word, '=') || ((*word)[0] == '-' && (*word)[1] != 'c')));
        if (!*word || (*word)[0] == '-') /* the word after -c is code, not a name */
            break;
        name = base_name(*word);
    }
    const char *dot = strrchr(name, '.');
    size_t n = dot && dot > name && strlen(dot) <= 4 ? (size_t)(dot - name) : strlen(name), i;
    n = n < size ? n : size - 1;
    n = n < PROGRAM_MAX ? n : PROGRAM_MAX;
    for (i = 0; i < n; i++)
        dst[i] = (char)(isalnum((unsigned char)name[i]) || strchr("._", name[i]) ? name[i] : '-');
    dst[i] = '\0';
    if (!dst[0] || dst[0] == '-') /* a name like an option could not be used in a command */
        snprintf(dst, size, "job");
}

/* Locks the directory itself, so that no lock file is left behind. Returns -1 if other users keep
 * /tmp locked; the caller then goes on without the lock. */
static int lock_base(const char *base)
{
    uint64_t deadline = deadline_in_ms(LOCK_MS);
    auto_close int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || deadline_passed(deadline))
            return -1;
        usleep(2000);
    }
    return take_fd(&fd);
}

int jobs_claim(struct job_entry *entry, const char *base, const char *said, char *const *argv,
               int *ret_lock, struct err *err)
{
    struct jobs jobs;
    char program[PROGRAM_MAX + 1];
    auto_close int lock = lock_base(base);
    int rc = jobs_find(&jobs, err);
    if (rc < 0)
        return rc;
    const struct job_entry *same = said ? jobs_get(&jobs, said) : NULL;
    if (same) {
        rc = err_set(err, EEXIST, "there is a job %s already (hvdrun %d): want another name", said,
                     same->pid);
    } else if (said) {
        snprintf(entry->name, sizeof(entry->name), "%s", said);
    } else {
        jobs_program(argv, program, sizeof(program));
        for (int i = 1; i == 1 || jobs_get(&jobs, entry->name); i++)
            snprintf(entry->name, sizeof(entry->name), "%s-%d", program, i);
    }
    jobs_fini(&jobs);
    *ret_lock = take_fd(&lock);
    return rc;
}

int jobs_publish(const struct job_entry *entry, struct err *err)
{
    char path[JOBS_DIR_MAX + 16], fresh[JOBS_DIR_MAX + 16];
    auto_json json_t *j = json_pack("{s:o, s:i, s:I, s:o}", "name",
                                    json_lossy_string(entry->name, strlen(entry->name)), "pid",
                                    entry->pid, "started", (json_int_t)entry->started, "command",
                                    json_lossy_string(entry->command, strlen(entry->command)));
    auto_free char *text = json_write(j);
    if (!text)
        return err_set(err, ENOMEM, "no memory for a job's file");
    jobs_path(path, sizeof(path), entry->dir, "job");
    jobs_path(fresh, sizeof(fresh), entry->dir, "job.new");
    auto_close int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -errno : fd_write_full(fd, text, strlen(text), deadline_in_ms(1000));
    if (rc == 0 && rename(fresh, path) < 0)
        rc = -errno;
    return rc < 0 ? err_sys(err, -rc, "%s", path) : 0;
}

int jobs_lock(const char *dir, int *ret, struct err *err)
{
    auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "%s", dir);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? err_set(err, EBUSY,
                             "another hvdrun has just taken this job over, or is starting it")
                   : err_sys(err, errno, "%s", dir);
    *ret = take_fd(&fd);
    return 0;
}

void jobs_remove(const char *dir)
{
    const char *const files[] = {"sock", "token", "job", "job.new", "state", "state.new"};
    char path[JOBS_DIR_MAX + 64];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        jobs_path(path, sizeof(path), dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}
