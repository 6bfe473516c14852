/* SPDX-License-Identifier: Apache-2.0
 *
 * midway [-f] [-m] [-o] [-s] FOLDER: hvd_shutdown() in the middle of a large sum. The summed memory
 * is unmapped right after it, so a rank that still works on it would crash. The process then ends
 * with MPI_Finalize.
 *
 *   -f  rank 1 of 2 is stopped in the middle (SIGSTOP), so the sum cannot end. Rank 0 keeps its
 *       tensors, as the error tells it to, and both ranks expect that hvd_init() refuses this MPI.
 *       No rank calls MPI_Finalize, and mpirun ends all ranks as soon as one ends. So the ranks
 *       wait for each other in FOLDER, which is empty at the start.
 *   -m  broadcasts instead of sums
 *   -o  only rank 0 leaves; the other ranks get all sums, and an error for an operation after them
 *   -s  steps of small sums, again and again, until the schedule is frozen; another thread of rank
 * 0 then leaves, and the other ranks get an error that says so
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hvd.h>

#include "tests/harness/rank.h"

enum { SUMS = 3 };
#define COUNT ((int64_t)16 << 20)
#define BYTES ((size_t)COUNT * sizeof(float))

static int rank, size;
static float *data[SUMS];
static hvd_handle handles[SUMS];
static char why[1024];

static int begin(bool moves)
{
    static const char *const names[SUMS] = {"a", "b", "c"};
    static const int64_t count = COUNT;
    struct hvd_request r[SUMS];
    for (int i = 0; i < SUMS; i++) {
        data[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data[i] == MAP_FAILED)
            return -1;
        memset(data[i], 0, BYTES);
        r[i] = rank_request(names[i], data[i], &count);
        r[i].kind = moves ? HVD_BROADCAST : HVD_ALLREDUCE;
    }
    return hvd_submit(r, SUMS, handles);
}

static void *wait_all(void *arg)
{
    for (int i = 0; i < SUMS; i++) {
        if (hvd_wait(handles[i]) < 0) {
            snprintf(why, sizeof(why), "%s", hvd_error());
            break;
        }
    }
    return NULL;
}

/* Leaves, then waits a second: the MPI of this process must not touch the unmapped memory. */
static int leave(void)
{
    hvd_wait(handles[0]);
    nap_ms(4);
    hvd_shutdown();
    for (int i = 0; i < SUMS; i++)
        munmap(data[i], BYTES);
    nap_ms(1000);
    return 0;
}

static int stay(void)
{
    float late = 0;
    wait_all(NULL);
    if (why[0]) {
        printf("rank %d: %s\n", rank, why);
        return -1;
    }
    if (hvd_allreduce("late", &late, &late, 1, HVD_FLOAT32, HVD_SUM) == 0 ||
        !strstr(hvd_error(), "rank 0 has shut down")) {
        printf("rank %d: %s\n", rank, hvd_error());
        return -1;
    }
    hvd_shutdown();
    return 0;
}

static void *leave_beside(void *arg)
{
    nap_ms(300 + (int)(getpid() % 50));
    hvd_shutdown();
    return NULL;
}

static int steps(void)
{
    static const char *const names[SUMS] = {"x", "y", "z"};
    static const int64_t count = 4096;
    static float small[SUMS][4096];
    struct hvd_request r[SUMS];
    pthread_t leaver;
    if (rank == 0 && pthread_create(&leaver, NULL, leave_beside, NULL) != 0)
        return -1;
    for (int i = 0; i < SUMS; i++)
        r[i] = rank_request(names[i], small[i], &count);
    for (int rc = 0; rc == 0;) {
        for (int i = 0; i < SUMS && rc == 0; i++)
            rc = hvd_submit(&r[i], 1, &handles[i]);
        for (int i = 0; i < SUMS && rc == 0; i++)
            rc = hvd_wait(handles[i]);
    }
    snprintf(why, sizeof(why), "%s", hvd_error());
    if (rank == 0)
        pthread_join(leaver, NULL);
    hvd_shutdown();
    printf("rank %d: %s\n", rank, why);
    return rank > 0 && !strstr(why, "rank 0 has shut down") ? -1 : 0;
}

static int stand_still(pid_t other)
{
    pthread_t waiter;
    if (pthread_create(&waiter, NULL, wait_all, NULL) != 0)
        return -1;
    if (rank == 1) {
        hvd_wait(handles[0]);
        nap_ms(4);
        kill(getpid(), SIGSTOP);
    } else {
        nap_ms(1500);
        hvd_shutdown();
        kill(other, SIGCONT);
    }
    pthread_join(waiter, NULL);
    printf("rank %d: %s\n", rank, why);
    hvd_shutdown();
    if (rank == 0 && !strstr(why, "may still read and write its tensors"))
        return -1;
    if (hvd_init() == 0 || !strstr(hvd_error(), "MPI cannot be used any more in this process"))
        return -1;
    printf("rank %d: %s\n", rank, hvd_error());
    return 0;
}

static int end_together(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%d", folder, rank);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    for (int other = 0, naps = 0; other < size; other++) {
        snprintf(path, sizeof(path), "%s/%d", folder, other);
        while (access(path, F_OK) < 0) {
            if (naps++ > 2000)
                return -1;
            nap_ms(10);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool frozen = false, moves = false, one = false, small = false;
    for (int opt; (opt = getopt(argc, argv, "fmos")) != -1;) {
        frozen = frozen || opt == 'f';
        moves = moves || opt == 'm';
        one = one || opt == 'o';
        small = small || opt == 's';
    }
    if (optind + 1 != argc)
        return 2;
    if (hvd_init() < 0) {
        fprintf(stderr, "midway: %s\n", hvd_error());
        return 1;
    }
    rank = hvd_rank();
    size = hvd_size();
    double pid = rank == 1 ? getpid() : 0;
    if (hvd_allreduce("pid", &pid, &pid, 1, HVD_FLOAT64, HVD_SUM) < 0 ||
        (!small && begin(moves) < 0))
        return 1;
    int rc = small             ? steps()
             : frozen          ? stand_still((pid_t)pid)
             : one && rank > 0 ? stay()
                               : leave();
    if (rc < 0)
        return 1;
    printf("rank %d: ok\n", rank);
    fflush(stdout);
    return frozen && end_together(argv[optind]) < 0;
}
