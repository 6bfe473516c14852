/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd-launch: static, so that it runs in every image. Two things:
 *
 *     hvd-launch --install DIR   copies the bundle that it lies in to DIR (an init container does)
 *     NAME ...                   as the link NAME to it: starts NAME.real beside it
 *
 * The programs of the bundle carry a C library and a loader of their own in BUNDLE_PLACE/private.
 * What an image's environment says to its own loader is not for that one: it is put aside
 * (place.h), and the program takes it back when it has been loaded (environment.c), so that ranks
 * see what the image says.
 *
 * libhvd.so is loaded into the image's programs, with the image's C library: whether there is one,
 * and whether it is new enough, is found out here, once, and said in one line.
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

#define PATIENCE_MS 20000 /* for the image's loader, on a node that is starting many pods */

extern char **environ;

static const char usage[] = "usage: hvd-launch --install DIR\n"
                            "\n"
                            "Copies the bundle (agent, doctor, library, Python package) to DIR, "
                            "which has to be mounted at\n" BUNDLE_PLACE " where it is used.\n"
                            "\n"
                            "  --help      this text\n";

/* The folder above this program's, "/" for an image's root. */
static const char *bundle_folder(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return BUNDLE_PLACE; /* no /proc here */
        *slash = '\0';
    }
    return path[0] ? path : "/";
}

/* ---- the image's C library ------------------------------------------------------------------ */

/* "/lib/ld-musl-x86_64.so.1" if there is one. */
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

/* What the child says until its end, one line of it. -ETIMEDOUT. */
static int read_said(int fd, char *dst, size_t size)
{
    size_t n = 0;
    for (;;) {
        char more[512];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MS) == 0)
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

/* Starts hvd-probe, which is as new as libhvd.so and no newer, by the image's own loader. */
static int try_image(const char *name, const char *probe)
{
    char *const argv[] = {(char *)probe, "--help", NULL}, *const no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    char said[512] = "";
    int ends[2], status = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) < 0 || posix_spawn_file_actions_init(&actions) != 0)
        return 0; /* no descriptors or no memory: its own affair, and it will say so */
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    int rc = posix_spawn(&pid, probe, &actions, NULL, argv, no_environment);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (rc == 0) {
        if (read_said(ends[0], said, sizeof(said)) < 0)
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
        fprintf(
            stderr,
            "%s: this image's C library does not do: hvd needs glibc 2.28 or later; the image's "
            "loader says: %s\n",
            name, *said ? said : "nothing");
    return -ENOEXEC;
}

/* ---- starting ------------------------------------------------------------------------------- */

/* Renames in place what is for the image's loader: the new names are longer, so new strings. */
static int put_aside(void)
{
    static const char *const names[] = {BUNDLE_KEPT_NAMES, NULL};
    for (char **e = environ; *e; e++) {
        for (int i = 0; names[i]; i++) {
            size_t n = strlen(names[i]);
            char *text;
            if (strncmp(*e, names[i], n) != 0 || (*e)[n] != '=')
                continue;
            if (asprintf(&text, BUNDLE_KEPT_PREFIX "%s", *e) < 0)
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
        fprintf(stderr, "%s: the bundle has to be at %s, and is at %s\n", name, BUNDLE_PLACE,
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
    if (put_aside() == 0)
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
