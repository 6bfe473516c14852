/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd-launch: static, so that it runs in every image. It is called in two ways:
 *
 *     hvd-launch --install DIR   copies its own bundle to DIR (an init container does this)
 *     NAME ...                   by a link NAME to it: starts NAME.real beside the link
 *
 * The programs of the bundle have a C library and a loader of their own in BUNDLE_PLACE/private.
 * Environment variables for the image's loader must not reach that loader: they are saved under
 * other names (place.h), and the program restores them after it has been loaded (environment.c), so
 * that ranks see the image's values.
 *
 * libhvd.so is loaded into the image's programs, with the image's C library. Whether the image has
 * glibc, and a version that is new enough, is tested here, once; if not, the error is one line.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "images/bundle/install.h"
#include "images/bundle/place.h"

#define PROBE_LIMIT_MS 20000 /* for hvd-probe --help; a node that starts many pods is slow */

extern char **environ;

static const char usage[] =
    "usage: hvd-launch --install DIR\n"
    "\n"
    "Copies the bundle (agent, doctor, library, Python package) to DIR, "
    "which has to be mounted at\n" BUNDLE_PLACE " in the container that uses it.\n"
    "\n"
    "  --help      this text\n";

/* The parent of the folder with this program: "/hvd" for /hvd/bin/hvd-launch, "/" for
 * /bin/hvd-launch in the image of the bundle. BUNDLE_PLACE if /proc is not mounted. */
static const char *bundle_folder(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return BUNDLE_PLACE; /* /proc is not mounted */
        *slash = '\0';
    }
    return path[0] ? path : "/";
}

/* ---- the image's C library ------------------------------------------------------------------ */

/* Writes the path of musl's loader ("/lib/ld-musl-x86_64.so.1"). Returns whether there is one. */
static bool find_musl(char *dst, size_t size)
{
    DIR *folder = opendir("/lib");
    struct dirent *e;
    bool found = false;
    while (folder && !found && (e = readdir(folder)))
        if ((found = strncmp(e->d_name, "ld-musl-", 8) == 0))
            snprintf(dst, size, "/lib/%.200s", e->d_name);
    if (folder)
        closedir(folder);
    return found;
}

static int say_none(const char *name)
{
    char musl[256];
    bool has_musl = find_musl(musl, sizeof(musl));
    fprintf(
        stderr,
        "%s: this image has no glibc (%s is missing%s%s): hvd needs an image with glibc 2.28 or "
        "later\n",
        name, BUNDLE_LOADER, has_musl ? ", it has musl: " : "", has_musl ? musl : "");
    return -ENOENT;
}

/* Reads the child's output until its end and writes the first line to dst. Returns 0, or -ETIMEDOUT
 * if the child writes nothing for PROBE_LIMIT_MS. */
static int read_output(int fd, char *dst, size_t size)
{
    size_t n = 0;
    for (;;) {
        char more[512];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, PROBE_LIMIT_MS) == 0)
            return -ETIMEDOUT;
        ssize_t got = read(fd, more, sizeof(more));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        size_t room = size - 1 - n, take = (size_t)got < room ? (size_t)got : room;
        memcpy(dst + n, more, take);
        n += take;
    }
    dst[n] = '\0';
    dst[strcspn(dst, "\n")] = '\0';
    return 0;
}

/* Finds out whether the container's image has a glibc that is new enough for libhvd.so: starts
 * hvd-probe, which needs the same version, with the image's own loader. Returns 0, or -ENOEXEC with
 * the reason printed. */
static int try_image(const char *name, const char *probe)
{
    char *const argv[] = {(char *)probe, "--help", NULL}, *const no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    char said[512] = "";
    int ends[2], status = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) < 0 || posix_spawn_file_actions_init(&actions) != 0)
        return 0; /* out of descriptors or memory: the program itself will report it */
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    int rc = posix_spawn(&pid, probe, &actions, NULL, argv, no_environment);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (rc == 0) {
        if (read_output(ends[0], said, sizeof(said)) < 0)
            kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    if (rc == 0 && status == 0)
        return 0;
    if (rc != 0)
        fprintf(stderr, "%s: %s: %s\n", name, probe, strerror(rc));
    else
        fprintf(stderr,
                "%s: this image's C library is too old: hvd needs glibc 2.28 or later; the image's "
                "loader reports: %s\n",
                name, *said ? said : "nothing");
    return -ENOEXEC;
}

/* ---- starting ------------------------------------------------------------------------------- */

/* Renames the variables for the image's loader. The new names are longer, so the strings are
 * allocated. */
static int save_variables(void)
{
    static const char *const names[] = {BUNDLE_SAVED_NAMES, NULL};
    for (char **e = environ; *e; e++) {
        for (int i = 0; names[i]; i++) {
            size_t n = strlen(names[i]);
            char *text;
            if (strncmp(*e, names[i], n) != 0 || (*e)[n] != '=')
                continue;
            if (asprintf(&text, BUNDLE_SAVED_PREFIX "%s", *e) < 0)
                return -ENOMEM;
            *e = text;
            break;
        }
    }
    return 0;
}

static int start(const char *name, char **argv)
{
    char program[4200];
    const char *folder = bundle_folder();
    if (strcmp(folder, BUNDLE_PLACE) != 0) {
        fprintf(stderr, "%s: the bundle must be at %s, but it is at %s\n", name, BUNDLE_PLACE,
                folder);
        return 2;
    }
    if (access(BUNDLE_LOADER, X_OK) < 0) {
        say_none(name);
        return 2;
    }
    if (try_image(name, BUNDLE_PLACE "/bin/hvd-probe") < 0)
        return 2;
    snprintf(program, sizeof(program), "%s/bin/%.100s.real", folder, name);
    if (save_variables() == 0)
        execve(program, argv, environ);
    fprintf(stderr, "%s: %s: %s\n", name, program, strerror(errno));
    return 2;
}

int main(int argc, char **argv)
{
    const char *path = (const char *)getauxval(AT_EXECFN);
    path = path ? path : argv[0];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char problem[4400];
    if (strcmp(name, "hvd-launch") != 0)
        return start(name, argv);
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    if (argc != 3 || strcmp(argv[1], "--install") != 0) {
        fputs(usage, stderr);
        return 2;
    }
    if (install(bundle_folder(), argv[2], problem, sizeof(problem)) == 0)
        return 0;
    fprintf(stderr, "hvd-launch: %s\n", problem);
    return 1;
}
