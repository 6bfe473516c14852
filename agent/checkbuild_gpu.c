/* SPDX-License-Identifier: Apache-2.0
 *
 * checkbuild_gpu: see checkbuild_gpu.h.
 */
#include "agent/checkbuild_gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/backend/cuda_api.h"
#include "core/backend/cuda_kernels.h"
#include "core/backend/nccl_api.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"

#define LOOK_MS     10000
#define KERNELS_MAX ((size_t)64 << 20)
#define ANSWER_MAX  8192

/* The library that the child is loading and its name for messages; in memory that parent and child
 * share. */
struct trying {
    char name[8], path[PATH_MAX];
};

static void tries(struct trying *trying, const char *name, const char *path)
{
    snprintf(trying->name, sizeof(trying->name), "%s", name);
    snprintf(trying->path, sizeof(trying->path), "%s", path);
}

/* Prints a line "[X] NAME (words)". */
static void say(FILE *out, bool usable, const char *name, const char *words)
{
    fprintf(out, "    [%c] %s (%s)\n", usable ? 'X' : ' ', name, words);
}

static bool look_for_driver(FILE *out, struct trying *trying)
{
    const struct cuda_api *cuda;
    struct err err = {0};
    char words[PATH_MAX + 64];
    tries(trying, "CUDA", "libcuda.so.1");
    bool there = cuda_api_open(&cuda, &err) == 0;
    if (there)
        snprintf(words, sizeof(words), "a driver for CUDA %d.%d, %s", cuda->version / 1000,
                 cuda->version / 10 % 100, cuda->path);
    say(out, there, "CUDA", there ? words : err_text(&err));
    return there;
}

/* The first file that exists counts, as in nccl_api_load(). */
static int open_nccl(const char *torch, struct trying *trying, struct nccl_api *ret,
                     struct err *err)
{
    char site[PATH_MAX];
    struct nccl_places places;
    snprintf(site, sizeof(site), "%s", torch);
    char *slash = strrchr(site, '/');
    if (slash)
        *slash = '\0';
    int rc = -ENOENT;
    nccl_find_for(slash ? site : NULL, &places);
    for (int i = 0; i < places.n && rc == -ENOENT; i++) {
        struct err why = {0};
        tries(trying, "NCCL", places.v[i].path);
        rc = nccl_api_open(&places.v[i], ret, &why);
        if (i == 0 || rc != -ENOENT)
            *err = why;
    }
    return rc;
}

static void look_for_nccl(FILE *out, struct trying *trying, const char *torch, bool driver)
{
    struct nccl_api nccl;
    struct err err = {0};
    char words[PATH_MAX + 128];
    int rc = open_nccl(torch, trying, &nccl, &err);
    if (rc < 0) {
        say(out, false, "NCCL", err_text(&err));
        return;
    }
    int n = snprintf(words, sizeof(words), "%s, %s, %s", nccl.text, nccl.path,
                     nccl_origin_name(nccl.origin));
    if (nccl.cuda > 0)
        snprintf(words + n, sizeof(words) - (size_t)n, ", for CUDA %d.%d", nccl.cuda / 1000,
                 nccl.cuda / 10 % 100);
    if (!driver)
        strncat(words, "; there is no driver", sizeof(words) - strlen(words) - 1);
    say(out, driver, "NCCL", words);
}

/* The kernels beside the Python package's library, else those of this installation. */
static int find_kernels(const char *hvd, char *ret, size_t size, struct err *err)
{
    char own[PATH_MAX];
    int n = snprintf(own, sizeof(own), "%s/hvd_kernels.fatbin", hvd);
    bool there = *hvd && n > 0 && (size_t)n < sizeof(own) && access(own, R_OK) == 0;
    if (!there || getenv("HVD_KERNELS"))
        return cuda_kernels_path(ret, size, err);
    snprintf(ret, size, "%s", own);
    return 0;
}

static void look_for_kernels(FILE *out, const char *hvd)
{
    char path[PATH_MAX], inside[256], words[PATH_MAX + 320];
    auto_free char *bytes = NULL;
    struct err err = {0};
    size_t n = 0;
    int rc = find_kernels(hvd, path, sizeof(path), &err);
    if (rc == 0) {
        rc = fd_read_file(path, KERNELS_MAX, &bytes, &n);
        if (rc < 0)
            err_sys(&err, -rc, "%s", path);
    }
    if (rc == 0) {
        rc = cuda_fatbin_text(bytes, n, inside, sizeof(inside), &err);
        if (rc < 0)
            err_prefix(&err, "%s", path);
    }
    if (rc == 0)
        snprintf(words, sizeof(words), "%s: %s", path, inside);
    say(out, rc == 0, "kernels for GPUs", rc == 0 ? words : err_text(&err));
}

static void look(int fd, struct trying *trying, const char *torch, const char *hvd)
{
    FILE *out = fdopen(fd, "w");
    if (!out)
        _exit(1);
    bool driver = look_for_driver(out, trying);
    look_for_kernels(out, hvd);
    fflush(out);
    look_for_nccl(out, trying, torch, driver); /* last, because it may crash */
    _exit(fflush(out) == 0 ? 0 : 1);
}

/* Stores the child's output in dst. Returns 0, -ETIMEDOUT, or -EIO for a failed child. */
static int hear(int fd, pid_t pid, char *dst, size_t size)
{
    uint64_t deadline = deadline_in_ms(LOOK_MS);
    int rc = 0, status = 0;
    size_t n = 0;
    while (n < size - 1 && rc == 0) {
        rc = fd_read_full(fd, dst + n, 1, deadline);
        n += rc == 0;
    }
    dst[n] = '\0';
    kill(pid, rc == -ECONNRESET ? 0 : SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (rc == -ETIMEDOUT)
        return rc;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

void checkbuild_print_gpu(const char *torch, const char *hvd)
{
    char answer[ANSWER_MAX], words[PATH_MAX + 64];
    int ends[2], rc = -EIO;
    struct trying *trying =
        mmap(NULL, sizeof(*trying), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (trying == MAP_FAILED)
        return;
    answer[0] = '\0';
    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) == 0) {
        auto_close int in = ends[0], out = ends[1];
        pid_t pid = fork();
        if (pid == 0)
            look(out, trying, torch, hvd);
        close(take_fd(&out));
        if (pid > 0)
            rc = hear(in, pid, answer, sizeof(answer));
    }
    fputs(answer, stdout);
    snprintf(words, sizeof(words), "loading %s %s", trying->path,
             rc == -ETIMEDOUT ? "takes longer than 10 s" : "crashes");
    if (rc < 0)
        say(stdout, false, trying->name, words);
    munmap(trying, sizeof(*trying));
}
