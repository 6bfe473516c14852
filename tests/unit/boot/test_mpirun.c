/* SPDX-License-Identifier: Apache-2.0
 *
 * test_mpirun: ranks of an mpirun that speaks no PMIx. They are refused if each would be a world of
 * one, they meet at HVD_RENDEZVOUS if that is set, and they are told apart from tasks of srun. Also
 * invalid numbers. Ranks are forked children that exit with a code; the parent asserts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/boot/boot.h"
#include "core/boot/mpirun.h"
#include "tests/harness/port.h"

/* Unsets every variable that boot reads. */
static int clear(void **state)
{
    static const char *const names[] = {
        "HVD_RANK",
        "HVD_SIZE",
        "HVD_RENDEZVOUS",
        "HVD_KEY_FILE",
        "PMI_RANK",
        "PMI_SIZE",
        "PMI_ID",
        "MPI_LOCALNRANKS",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "SLURM_PROCID",
        "SLURM_STEP_ID",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "SLURM_STEP_NUM_TASKS",
        "PMIX_RANK",
        "PMIX_NAMESPACE",
        "HVD_AGENT_FD",
        "RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    return 0;
}

/* Sets the variables in a text such as "A=1 B=2". */
static void set(const char *text)
{
    char copy[300], *end = NULL;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *one = strtok_r(copy, " ", &end); one; one = strtok_r(NULL, " ", &end)) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        setenv(one, value, 1);
    }
}

static void opens(const char *variables, const char *name, int rank, int size)
{
    struct boot boot;
    struct err err = {0};
    clear(NULL);
    set(variables);
    int rc = boot_open(&boot, &err);
    if (rc < 0 || strcmp(boot.ops->name, name) != 0)
        fail_msg("%s: %d, %s", variables, rc, rc < 0 ? err.msg : boot.ops->name);
    assert_int_equal(boot.rank, rank);
    assert_int_equal(boot.size, size);
    boot_fini(&boot);
}

static void refused(const char *variables, int want, const char *text)
{
    struct boot boot;
    struct err err = {0};
    clear(NULL);
    set(variables);
    int rc = boot_open(&boot, &err);
    if (rc == 0)
        fail_msg("%s: %s, rank %d of %d", variables, boot.ops->name, boot.rank, boot.size);
    boot_fini(&boot);
    assert_int_equal(rc, want);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.msg);
}

static void test_no_world_of_one(void **state)
{
    (void)state;
    refused("PMI_RANK=0 PMI_SIZE=4", -ENOTSUP, "PMI_SIZE=4: this rank was started by an mpirun");
    refused("PMI_RANK=3 PMI_SIZE=4 PMI_FD=8 MPI_LOCALNRANKS=4", -ENOTSUP, "hvdrun");
    refused("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", -ENOTSUP, "OMPI_COMM_WORLD_SIZE=2");
    refused("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2", -ENOTSUP, "MV2_COMM_WORLD_SIZE=2");
    /* hydra with -pmi-port sets no size: the message asks for HVD_RANK, HVD_SIZE and
     * HVD_RENDEZVOUS */
    refused("PMI_ID=0 MPI_LOCALNRANKS=2", -ENOTSUP, "set HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS");
    refused("PMI_ID=1 MPI_LOCALNRANKS=1 HVD_RENDEZVOUS=127.0.0.1:1", -ENOTSUP, "PMI_ID=1");
}

static void test_one_rank(void **state)
{
    (void)state;
    opens("PMI_RANK=0 PMI_SIZE=1 MPI_LOCALNRANKS=1", "alone", 0, 1);
    opens("PMI_ID=0 MPI_LOCALNRANKS=1", "alone", 0, 1);
    opens("PMI_RANK= PMI_SIZE= MPI_LOCALNRANKS= PMI_ID=", "alone", 0, 1);
    opens("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "mpirun", 0, 1);
    opens("PMI_RANK=3 PMI_SIZE=4 HVD_RANK=0 HVD_SIZE=1", "env", 0,
          1); /* HVD_RANK and HVD_SIZE come first */
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "PMI_SIZE=x PMI_RANK=0",
        "PMI_SIZE=-2 PMI_RANK=0",
        "PMI_SIZE=0 PMI_RANK=0",
        "PMI_SIZE=65537 PMI_RANK=0",
        "PMI_SIZE=4",
        "PMI_SIZE=4 PMI_RANK=4",
        "PMI_SIZE=4 PMI_RANK=-1",
        "PMI_SIZE=4 PMI_RANK=1x",
        "PMI_SIZE=+4 PMI_RANK=1",
        "PMI_SIZE=99999999999999999999 PMI_RANK=1",
        "PMI_SIZE=4 PMI_RANK=",
        "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=1",
        "OMPI_COMM_WORLD_SIZE=2",
        "OMPI_COMM_WORLD_SIZE=2. OMPI_COMM_WORLD_RANK=0",
        "MV2_COMM_WORLD_SIZE=2",
        "MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_RANK=two",
        "MPI_LOCALNRANKS=many",
        "MPI_LOCALNRANKS=-2",
        "MPI_LOCALNRANKS=1 PMI_ID=x",
        "PMI_ID=1:2",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char met[200];
        snprintf(met, sizeof(met), "%s HVD_RENDEZVOUS=127.0.0.1:7000", bad[i]);
        refused(bad[i], -EINVAL, "is invalid");
        refused(met, -EINVAL, "is invalid");
    }
}

static void test_slurm(void **state)
{
    (void)state;
    /* srun --mpi=pmi2 */
    opens("SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 PMI_RANK=3 PMI_SIZE=4", "slurm", 3,
          4);
    opens("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 PMI_RANK=0 PMI_SIZE=1", "slurm", 0,
          1);
    /* hydra's proxies are tasks of srun: two tasks for four ranks are refused; with one task per
     * rank Slurm's numbers are used */
    refused("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 PMI_RANK=3 PMI_SIZE=4 "
            "MPI_LOCALNRANKS=2",
            -ENOTSUP, "PMI_SIZE=4");
    refused("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 MPI_LOCALNRANKS=2 PMI_ID=3",
            -ENOTSUP, "MPI_LOCALNRANKS=2");
    opens("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 PMI_RANK=0 PMI_SIZE=2 "
          "MPI_LOCALNRANKS=1",
          "slurm", 1, 2);
    /* an mpirun of two ranks in each of two tasks */
    refused("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 PMI_RANK=0 PMI_SIZE=2 "
            "MPI_LOCALNRANKS=2",
            -ENOTSUP, "PMI_SIZE=2");
    /* a batch script has no SLURM_STEP_ID: its SLURM_PROCID is not a rank */
    refused("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 PMI_RANK=2 PMI_SIZE=4", -ENOTSUP, "PMI_SIZE=4");
    /* Open MPI's variables come before Slurm's */
    opens("SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 OMPI_COMM_WORLD_RANK=0 "
          "OMPI_COMM_WORLD_SIZE=1",
          "mpirun", 0, 1);
}

static void test_will_do(void **state)
{
    (void)state;
    static const struct {
        const char *variables;
        bool want;
    } cases[] = {
        {"PMIX_RANK=0", false},
        {"HVD_RENDEZVOUS=127.0.0.1:1", false},
        {"HVD_RENDEZVOUS=127.0.0.1:1 PMI_SIZE=2", false},
        {"OMPI_COMM_WORLD_SIZE=2", false},
        {"OMPI_COMM_WORLD_SIZE=", false},
        {"OMPI_COMM_WORLD_SIZE=1", true},
        {"HVD_RENDEZVOUS=127.0.0.1:1 OMPI_COMM_WORLD_SIZE=2", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        clear(NULL);
        set(cases[i].variables);
        if (mpirun_will_do() != cases[i].want)
            fail_msg("%s", cases[i].variables);
    }
}

#define TORCHRUN "TORCHELASTIC_RUN_ID=x MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "

static void test_torchrun(void **state)
{
    (void)state;
    refused(TORCHRUN "RANK=1 WORLD_SIZE=4", -ENOTSUP,
            "WORLD_SIZE=4: torchrun started this rank, and only");
    refused("TORCHELASTIC_RUN_ID=x RANK=1 WORLD_SIZE=4", -ENOTSUP, "MASTER_ADDR or MASTER_PORT");
    refused("RANK=0 WORLD_SIZE=2", -ENOTSUP, "a launcher for torch.distributed started this rank");
    refused("RANK=2 WORLD_SIZE=2", -EINVAL, "RANK=2 and WORLD_SIZE=2 are invalid");
    refused("RANK=x WORLD_SIZE=2", -EINVAL, "RANK=x");
    opens(TORCHRUN "RANK=1 WORLD_SIZE=4 HVD_RENDEZVOUS=127.0.0.1:1", "torchrun", 1, 4);
    opens(TORCHRUN "RANK=0 WORLD_SIZE=1", "torchrun", 0, 1);
    opens("RANK=1 WORLD_SIZE=4 HVD_RENDEZVOUS=127.0.0.1:1", "torch", 1, 4);
    opens("RANK=0 WORLD_SIZE=1", "torch", 0, 1);
    /* A variable without its counterpart is not a launcher's. */
    opens("WORLD_SIZE=1", "alone", 0, 1);
    opens("WORLD_SIZE=4", "alone", 0, 1);
    opens("RANK=3", "alone", 0, 1);
    /* torchrun's variables come before those of the mpirun that started torchrun; HVD_RANK and
     * HVD_SIZE come first. */
    opens(TORCHRUN "RANK=1 WORLD_SIZE=4 HVD_RENDEZVOUS=127.0.0.1:1 OMPI_COMM_WORLD_RANK=0 "
                   "OMPI_COMM_WORLD_SIZE=1",
          "torchrun", 1, 4);
    opens("RANK=1 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "mpirun", 0, 1);
    opens(TORCHRUN "RANK=1 WORLD_SIZE=4 HVD_RANK=0 HVD_SIZE=1", "env", 0, 1);
}

/* Runs one rank in a child. Returns 0 if the rank has met the others. */
static int be_rank(const char *rank_name, const char *size_name, int rank, int size, int port)
{
    struct boot boot;
    struct err err = {0};
    struct buf card = {0};
    char text[64];
    snprintf(text, sizeof(text), "127.0.0.1:%d", port);
    setenv("HVD_RENDEZVOUS", text, 1);
    snprintf(text, sizeof(text), "%d", rank);
    setenv(rank_name, text, 1);
    snprintf(text, sizeof(text), "%d", size);
    setenv(size_name, text, 1);
    log_set_level(LOG_ERROR);
    buf_put_u8(&card, (uint8_t)rank);
    int rc = boot_open(&boot, &err);
    if (rc == 0)
        rc = boot_exchange(&boot, &card, deadline_in_ms(20000), &err);
    if (rc < 0)
        fprintf(stderr, "rank %d: %s\n", rank, err.msg);
    bool good = rc == 0 && boot.rank == rank && boot.size == size && !boot.has_key;
    for (int r = 0; good && r < size; r++)
        good = boot.cards[r].len == 1 && boot.cards[r].data[0] == r;
    boot_fini(&boot);
    buf_fini(&card);
    return good ? 0 : 1;
}

static void meet(const char *rank_name, const char *size_name)
{
    enum { RANKS = 3 };
    pid_t pids[RANKS];
    int port = port_free();
    clear(NULL);
    for (int r = 0; r < RANKS; r++) {
        fflush(NULL);
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(be_rank(rank_name, size_name, r, RANKS, port));
        }
    }
    int failures = 0;
    for (int r = 0; r < RANKS; r++) {
        int status = -1;
        failures += waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    }
    assert_int_equal(failures, 0);
}

static void test_rendezvous(void **state)
{
    (void)state;
    meet("PMI_RANK", "PMI_SIZE");
    meet("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    meet("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    alarm(120);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_no_world_of_one, clear),
        cmocka_unit_test_setup(test_one_rank, clear),
        cmocka_unit_test(test_torchrun),
        cmocka_unit_test_setup(test_numbers, clear),
        cmocka_unit_test_setup(test_slurm, clear),
        cmocka_unit_test_setup(test_will_do, clear),
        cmocka_unit_test_setup(test_rendezvous, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
