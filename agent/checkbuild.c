/* SPDX-License-Identifier: Apache-2.0
 *
 * checkbuild: see checkbuild.h.
 */
#include "agent/checkbuild.h"

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

#include "agent/checkbuild_gpu.h"
#include "agent/horovod.h"
#include "core/backend/mpi_library.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/include/hvd.h"
#include "diagnostics/backends.h"

#define PYTHON_MS 5000
#define GLOO      "    [X] Gloo (not Gloo itself: hvd runs without MPI)\n"

/* Prints the folder of each module without importing it: importing torch takes seconds. */
static const char script[] = "import os, sys, importlib.util as u\n"
                             "for name in ('torch', 'hvd'):\n"
                             "    try:\n"
                             "        origin = u.find_spec(name).origin\n"
                             "    except Exception:\n"
                             "        origin = None\n"
                             "    print(os.path.dirname(origin) if origin else '-', flush=True)\n"
                             "print(sys.executable)\n";

struct python {
    char executable[PATH_MAX];           /* "": there is no Python */
    char torch[PATH_MAX], hvd[PATH_MAX]; /* folders of these packages; "": not installed */
};

/* Stores what the interpreter prints in dst. Returns false if the interpreter cannot run, fails, or
 * takes too long. */
static bool ask_python(const char *python, char *dst, size_t size)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    auto_close int in = ends[0], out = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return false;
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0)
            _exit(126);
        execlp(python, python, "-c", script, (char *)NULL);
        _exit(127);
    }
    close(take_fd(&out));
    uint64_t deadline = deadline_in_ms(PYTHON_MS);
    size_t n = 0;
    int rc = 0;
    while (n < size - 1 && rc == 0) {
        rc = fd_read_full(in, dst + n, 1, deadline);
        n += rc == 0;
    }
    dst[n] = '\0';
    if (rc == -ETIMEDOUT)
        kill(pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void take_line(char **answer, char *dst, size_t size)
{
    char *line = strsep(answer, "\n");
    snprintf(dst, size, "%s", line && strcmp(line, "-") != 0 ? line : "");
}

/* Chooses the first Python that has torch, else the first one. */
static void find_python(struct python *ret)
{
    const char *const pythons[] = {"python3", "/usr/bin/python3"};
    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < 2 && !*ret->torch; i++) {
        char answer[3 * PATH_MAX], *rest = answer;
        struct python found;
        if (!ask_python(pythons[i], answer, sizeof(answer)))
            continue;
        take_line(&rest, found.torch, sizeof(found.torch));
        take_line(&rest, found.hvd, sizeof(found.hvd));
        take_line(&rest, found.executable, sizeof(found.executable));
        if (*found.torch || !*ret->executable)
            *ret = found;
    }
}

static void print_frameworks(const struct python *python, bool horovod)
{
    printf("Available Frameworks:\n");
    printf("    [%c] PyTorch", *python->torch ? 'X' : ' ');
    if (*python->executable)
        printf(" (%s%s)", python->executable,
               *python->torch && !*python->hvd && !horovod ? ", which does not find the package hvd"
                                                           : "");
    printf("\n    [ ] TensorFlow\n    [ ] JAX\n%s    [X] C\n\n", horovod ? "    [ ] MXNet\n" : "");
}

static bool has_program(const char *name)
{
    const char *path = getenv("PATH");
    char *copy = strdup(path ? path : "");
    bool found = false;
    char *save, full[4096];
    for (char *dir = copy ? strtok_r(copy, ":", &save) : NULL; dir;
         dir = strtok_r(NULL, ":", &save)) {
        snprintf(full, sizeof(full), "%s/%s", dir, name);
        if (access(full, X_OK) == 0)
            found = true;
    }
    free(copy);
    return found;
}

static bool has_memfd(void)
{
    int fd = memfd_create("hvd-check", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void print_mpi(const struct backends *here)
{
    bool built = mpi_library_built(), there = *here->mpi != '\0';
    printf("    [%c] MPI", built && there ? 'X' : ' ');
    if (there)
        printf(" (%s, %s%s)", here->mpi, here->mpi_path,
               built ? "; HVD_BACKEND=mpi uses it" : "; hvd was built without it");
    else if (built)
        printf(" (hvd was built with it; there is no libmpi here)");
    printf("\n");
}

void checkbuild_print(bool horovod)
{
    struct backends here;
    struct python python;
    backends_look(&here);
    find_python(&python);
    if (horovod)
        printf("Horovod v" HOROVOD_VERSION ", by hvd v%s:\n\n", HVD_VERSION);
    else
        printf("hvd v%s:\n\n", HVD_VERSION);
    print_frameworks(&python, horovod);
    printf("Available Controllers:\n"
           "    [X] hvdrun\n"
           "    [X] TCP (HVD_RENDEZVOUS, torchrun)\n"
           "    [%c] PMIx (mpirun, srun)\n"
           "    [%c] Slurm\n",
           *here.pmix ? 'X' : ' ', has_program("srun") ? 'X' : ' ');
    if (horovod)
        printf("    [%c] MPI (PMIx, see above)\n" GLOO, *here.pmix ? 'X' : ' ');
    printf("\nAvailable Tensor Operations:\n"
           "    [%c] shared memory\n"
           "    [X] TCP\n",
           has_memfd() ? 'X' : ' ');
    checkbuild_print_gpu(python.torch, python.hvd);
    if (horovod)
        printf("    [ ] DDL\n    [ ] CCL\n");
    print_mpi(&here);
    if (horovod)
        printf(GLOO);
}
