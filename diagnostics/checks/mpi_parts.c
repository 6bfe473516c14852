/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_parts: libraries that Open MPI needs: PMIx, UCX, libfabric. See check.h.
 */
#include <stdio.h>
#include <string.h>

#include "diagnostics/check.h"
#include "diagnostics/checks/libs.h"
#include "diagnostics/facts.h"
#include "diagnostics/proc.h"

static void judge_library(const struct view *v, struct result *r, const char *probe,
                          const char *name, const char *good)
{
    const struct answer *a = machine_answer(v->machine, probe);
    const struct facts facts = {
        .view = v,
        .cuda = answer_str_at(machine_answer(v->machine, "cudart"), "lib", 0, "version", NULL)};
    char what[RESULT_TEXT], list[RESULT_TEXT / 2];
    if (!result_needs(r, a, name))
        return;
    if (libs_absent(a)) {
        result_pass(r, "no %s here", name);
        return;
    }
    const char *version = libs_version(a, 0), *path = answer_str_at(a, "lib", 0, "path", "?");
    const char *trouble = libs_trouble(a);
    result_expected(r, "%s", good);
    if (trouble) {
        result_observed(r, "%s", trouble);
        result_warn(r, "%s does not load: %s", name, trouble);
        return;
    }
    if (!version) {
        result_warn(r, "%s: %s", path,
                    answer_str_at(a, "lib", 0, "error", answer_str_at(a, "lib", 0, "state", "?")));
        return;
    }
    result_observed(r, "%s", version);
    snprintf(what, sizeof(what), "%s %s (%s)", name, version, path);
    if (facts_judge(r, &facts, probe, version, what))
        return;
    if (libs_distinct(a, false, true) > 1)
        result_info(r, "several %s: %s", name, libs_list(a, list, sizeof(list)));
    else
        result_pass(r, "%s", what);
}

static void check_pmix(const struct view *v, struct result *r)
{
    judge_library(v, r, "pmix", "PMIx", ">= 4.2.6");
}

static void check_ucx(const struct view *v, struct result *r)
{
    judge_library(v, r, "ucx", "UCX", ">= 1.15");
}

static void check_fabric(const struct view *v, struct result *r)
{
    judge_library(v, r, "libfabric", "libfabric", ">= 1.22 with EFA");
}

static void check_gds(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "mpi");
    const char *gds = machine_env(v->machine, "PMIX_MCA_gds");
    if (!result_needs(r, a, "MPI"))
        return;
    const char *version = libs_version(a, 0);
    result_observed(r, "%s", gds ? gds : "not set");
    result_expected(r, "hash");
    if (strcmp(answer_str_at(a, "lib", 0, "vendor", ""), "openmpi") != 0 || !version ||
        libs_major(version) != 4)
        result_pass(r, "does not concern this machine: only Open MPI 4 has the PMIx in question");
    else if (gds && strstr(gds, "hash") && gds[0] != '^')
        result_pass(r, "PMIX_MCA_gds=%s", gds);
    else if (gds && strstr(gds, "ds12") && gds[0] != '^')
        result_warn(r, "PMIX_MCA_gds=%s: ds12 keeps its data in shared files under TMPDIR", gds);
    else if (proc_in_container(v->machine))
        result_info(
            r,
            "Open MPI %s in a container: PMIX_MCA_gds=hash avoids \"gds_ds12_lock_pthread\" "
            "errors",
            version);
    else
        result_pass(r, "Open MPI %s outside a container", version);
}

#define OMPI_MCA "https://docs.open-mpi.org/en/v5.0.x/mca.html"

static const struct check rows[] = {
    {.id = "pmix-version",
     .code = "HVD7007",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"pmix"},
     .run = check_pmix,
     .title = "version of PMIx",
     .why =
         "Launcher and ranks speak PMIx with each other; very old ones do not understand new ones, "
         "and some lack a security fix.",
     .fix = {"an image with PMIx 4.2.6 or newer (apt-get install libpmix2)",
             "an image with PMIx 4.2.6 or newer", "apt-get install libpmix2, or build PMIx 4.2.6"},
     .action = ACTION_VERSION,
     .explain = "PMIx_Get_version() of libpmix.so.2 against the version rules. Debian's Open MPI "
                "uses it, others have one inside.",
     .refs = {"https://github.com/openpmix/openpmix/releases",
              "https://openpmix.github.io/support/faq/how-does-pmix-work-with-containers"}},
    {.id = "ucx-version",
     .code = "HVD7008",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"ucx", "cudart"},
     .run = check_ucx,
     .title = "version of UCX",
     .why = "UCX carries Open MPI's messages over InfiniBand; some versions corrupt data.",
     .fix = {"an image with UCX 1.15 or newer", "an image with UCX 1.15 or newer",
             "install UCX 1.15 or newer (DOCA-OFED brings one), or mpirun -mca pml ob1"},
     .action = ACTION_VERSION,
     .explain =
         "ucp_get_version() of libucp.so.0 against the version rules. hvd and NCCL do not use "
         "UCX unless a plugin is installed.",
     .refs = {"https://github.com/openucx/ucx/releases"}},
    {.id = "libfabric-version",
     .code = "HVD7009",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"libfabric"},
     .run = check_fabric,
     .title = "version of libfabric",
     .why = "On AWS the NCCL plugin needs libfabric: \"version `FABRIC_1.6' not found\" when it is "
            "too old; NCCL then falls back to sockets.",
     .fix = {"an image with aws-efa-installer 1.34 or newer", "the same, on every node",
             "run the current aws-efa-installer"},
     .action = ACTION_VERSION,
     .explain =
         "fi_version() of libfabric.so.1; only with EFA devices do the rules of aws-ofi-nccl "
         "apply.",
     .refs = {"https://github.com/aws/aws-ofi-nccl/releases"}},
    {.id = "pmix-gds",
     .code = "HVD7010",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"mpi"},
     .run = check_gds,
     .title = "PMIx's data store",
     .why =
         "The store ds12/ds21 of PMIx 3 maps files in TMPDIR with locks in them; in containers it "
         "prints \"PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c\" and may hang.",
     .fix = {"docker run -e PMIX_MCA_gds=hash ...", "env: [{name: PMIX_MCA_gds, value: hash}]",
             "export PMIX_MCA_gds=hash"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "Open MPI 4 in a container without PMIX_MCA_gds is a note, ds12 by name warns. hash "
         "keeps the data in each process: a little more memory, no files.",
     .refs = {"https://github.com/openpmix/openpmix/issues/1123", OMPI_MCA}},
};

const struct check_table checks_mpi_parts = {rows, sizeof(rows) / sizeof(*rows)};
