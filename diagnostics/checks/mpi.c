/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: the MPI library and mpirun (mpi_parts.c has PMIx, UCX and libfabric). hvd itself needs
 * neither; a job that is started with mpirun does. See check.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "diagnostics/check.h"
#include "diagnostics/checks/libs.h"
#include "diagnostics/facts.h"
#include "diagnostics/proc.h"

#define PATH_LEN 1024

static bool is_openmpi(const struct answer *a, int i)
{
    return strcmp(answer_str_at(a, "lib", i, "vendor", ""), "openmpi") == 0;
}

/* The name that people know: "Open MPI". */
static const char *vendor_name(const char *vendor)
{
    static const char *const names[][2] = {{"openmpi", "Open MPI"},
                                           {"mpich", "MPICH"},
                                           {"intel", "Intel MPI"},
                                           {"mvapich", "MVAPICH"},
                                           {"cray", "Cray MPICH"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(names[i][0], vendor) == 0)
            return names[i][1];
    }
    return "MPI";
}

/* The answer about MPI. NULL when there is no MPI here; the result is set. */
static const struct answer *some_mpi(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "mpi");
    if (!result_needs(r, a, "MPI"))
        return NULL;
    if (libs_absent(a)) {
        result_pass(r, "no MPI here; hvdrun needs none");
        return NULL;
    }
    return a;
}

/* ---- the library ---- */

static void check_load(const struct view *v, struct result *r)
{
    const struct answer *a = some_mpi(v, r);
    char list[RESULT_TEXT / 2];
    if (!a)
        return;
    const char *path = answer_str(a, "path", NULL), *version = answer_str(a, "version", NULL);
    const char *state = answer_str(a, "load", NULL);
    result_expected(r, "a libmpi that loads");
    if (path && version) {
        result_observed(r, "%s", version);
        result_pass(r, "%s %s (%s)", vendor_name(answer_str_at(a, "lib", 0, "vendor", "")), version,
                    path);
    } else if (state) {
        result_observed(r, "%s", state);
        result_warn(r, "loading %s: %s", path ? path : "libmpi", state);
    } else if (path || answer_count(a, "lib") == 0 || libs_reachable(a, 0)) {
        const char *error = answer_str(a, "error", "it does not report its version");
        result_observed(r, "%s", error);
        result_warn(r, "%s: %s", path ? path : "libmpi does not load", error);
    } else {
        result_info(r, "libmpi is in a folder where the loader does not look: %s",
                    libs_list(a, list, sizeof(list)));
    }
}

static void check_known_bad(const struct view *v, struct result *r)
{
    const struct answer *a = some_mpi(v, r);
    const struct facts facts = {.view = v};
    char what[RESULT_TEXT];
    if (!a)
        return;
    const char *version = libs_version(a, 0), *vendor = answer_str_at(a, "lib", 0, "vendor", "");
    if (!version) {
        result_skip(r, "the version of MPI is unknown: %s",
                    answer_str_at(a, "lib", 0, "error", "it does not report it"));
        return;
    }
    snprintf(what, sizeof(what), "%s %s", vendor_name(vendor), version);
    result_observed(r, "%s", version);
    result_expected(r, ">= 4.1.6");
    if (!is_openmpi(a, 0))
        result_pass(r, "%s: no rules for it", what);
    else if (!facts_judge(r, &facts, "openmpi", version, what))
        result_pass(r, "%s: no known fault", what);
}

/* ---- mpirun ---- */

/* The first program NAME in PATH, with the links that can be resolved here; false: none. */
static bool in_path(const struct machine *m, const char *name, char dst[PATH_LEN])
{
    const char *path = machine_env(m, "PATH");
    char link[PATH_LEN];
    if (!path)
        path = "/usr/local/bin:/usr/bin:/bin";
    for (; *path; path += *path == ':') {
        size_t n = strcspn(path, ":");
        int len = snprintf(dst, PATH_LEN, "%.*s/%s", (int)n, path, name);
        path += n;
        if (n == 0 || len >= PATH_LEN || dst[0] != '/' || !machine_exists(m, "%s", dst + 1))
            continue;
        for (int hop = 0; hop < 8 && machine_readlink(m, dst + 1, link, sizeof(link)) == 0; hop++) {
            char *slash = strrchr(dst, '/');
            size_t folder = *link == '/' ? 0 : (size_t)(slash - dst) + 1;
            if (folder + strlen(link) >= PATH_LEN)
                break;
            memcpy(dst + folder, link, strlen(link) + 1);
        }
        return true;
    }
    return false;
}

/* /opt/ompi/bin/mpirun and /opt/ompi/lib/libmpi.so.40 belong to one installation: the path in
 * front of a folder lib* of the library is the path in front of the program's bin. */
static bool same_prefix(const char *program, const char *library)
{
    const char *bin = strrchr(program, '/');
    while (bin && bin > program && bin[-1] != '/')
        bin--;
    size_t prefix = bin ? (size_t)(bin - program) : 0;
    for (const char *at = library; (at = strstr(at, "/lib")); at++) {
        if ((size_t)(at - library) + 1 == prefix && strncmp(program, library, prefix) == 0)
            return true;
    }
    /* Distributions link /lib to /usr/lib. */
    return strncmp(program, "/usr/bin/", 9) == 0 && strncmp(library, "/lib", 4) == 0;
}

static void check_path(const struct view *v, struct result *r)
{
    const struct answer *a = some_mpi(v, r);
    char program[PATH_LEN];
    if (!a)
        return;
    const char *library = answer_str_at(a, "lib", 0, "path", "");
    if (!in_path(v->machine, "mpirun", program)) {
        result_pass(r, "no mpirun in PATH");
        return;
    }
    bool hydra = strstr(program, "hydra") || strstr(program, "mpich");
    result_observed(r, "%s", program);
    result_expected(r, "one installation with %s", library);
    if (hydra && is_openmpi(a, 0))
        result_fail(r, "mpirun is MPICH's (%s), libmpi is Open MPI's (%s)", program, library);
    else if (!hydra && strstr(program, "orterun") && !is_openmpi(a, 0))
        result_fail(r, "mpirun is Open MPI's (%s), libmpi is not (%s)", program, library);
    else if (!same_prefix(program, library))
        result_warn(r, "mpirun is %s, but programs load %s: two installations", program, library);
    else
        result_pass(r, "mpirun %s and %s belong to one installation", program, library);
}

static void check_orted(const struct view *v, struct result *r)
{
    const struct answer *a = some_mpi(v, r);
    char program[PATH_LEN], daemon[PATH_LEN];
    if (!a)
        return;
    bool new = libs_major(libs_version(a, 0)) >= 5;
    const char *name = new ? "prted" : "orted";
    if (!in_path(v->machine, "mpirun", program)) {
        result_pass(r, "no mpirun in PATH");
        return;
    }
    if (!is_openmpi(a, 0)) {
        result_pass(r, "not Open MPI");
        return;
    }
    result_expected(r, "%s in PATH", name);
    if (in_path(v->machine, name, daemon))
        result_pass(r, "%s", daemon);
    else
        result_warn(r, "mpirun is %s, but %s is not in PATH: no other machine can be part of a job",
                    program, name);
}

static bool is_one(const struct machine *m, const char *name)
{
    const char *value = machine_env(m, name);
    return value && strcmp(value, "1") == 0;
}

static void check_root(const struct view *v, struct result *r)
{
    const struct machine *m = v->machine;
    const struct answer *a = some_mpi(v, r);
    char program[PATH_LEN];
    if (!a)
        return;
    int64_t uid = proc_uid(m);
    if (uid < 0) {
        result_skip(r, "the user id cannot be read: needs /proc");
        return;
    }
    result_observed(r, "uid %" PRId64, uid);
    if (uid != 0)
        result_pass(r, "not root (uid %" PRId64 ")", uid);
    else if (!is_openmpi(a, 0) || !in_path(m, "mpirun", program))
        result_pass(r, "root, but no mpirun of Open MPI in PATH");
    else if ((is_one(m, "OMPI_ALLOW_RUN_AS_ROOT") && is_one(m, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")) ||
             (is_one(m, "PRTE_ALLOW_RUN_AS_ROOT") && is_one(m, "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")))
        result_pass(r, "root, and the variables that allow mpirun to run as root are set");
    else
        result_info(r,
                    "root: mpirun refuses to start without --allow-run-as-root; hvdrun does not");
}

/* ---- interfaces ---- */

static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (; *list; list += *list == ',') {
        size_t len = strcspn(list, ",");
        if (len == n && strncmp(list, word, n) == 0)
            return true;
        list += len;
    }
    return false;
}

/* Finds the first interface name of the list (networks in CIDR form are skipped) that does not
 * exist here; false: all exist. */
static bool first_missing(const struct machine *m, const char *list, char dst[64])
{
    for (; *list; list += *list == ',') {
        size_t n = strcspn(list, ",");
        snprintf(dst, 64, "%.*s", (int)n, list);
        list += n;
        if (*dst && !strchr(dst, '/') && !strchr(dst, '.') &&
            !machine_exists(m, "sys/class/net/%s", dst))
            return true;
    }
    return false;
}

static void check_btl_if(const struct view *v, struct result *r)
{
    const struct machine *m = v->machine;
    const char *include = machine_env(m, "OMPI_MCA_btl_tcp_if_include");
    const char *exclude = machine_env(m, "OMPI_MCA_btl_tcp_if_exclude");
    char missing[64];
    if (!include && !exclude) {
        result_pass(r, "Open MPI chooses its interfaces itself");
        return;
    }
    result_observed(r, "include %s, exclude %s", include ? include : "-", exclude ? exclude : "-");
    if (include && exclude)
        result_fail(r, "btl_tcp_if_include=%s and btl_tcp_if_exclude=%s exclude each other",
                    include, exclude);
    else if (include && machine_exists(m, "sys/class/net") && first_missing(m, include, missing))
        result_fail(r, "btl_tcp_if_include=%s: there is no interface %s here", include, missing);
    else if (exclude && !listed(exclude, "lo") && !strstr(exclude, "127.0.0."))
        result_warn(r,
                    "btl_tcp_if_exclude=%s leaves lo in: ranks connect to 127.0.0.1 of each other",
                    exclude);
    else
        result_pass(r, "btl_tcp_if_%s=%s", include ? "include" : "exclude",
                    include ? include : exclude);
}

static const struct check rows[] = {
    {.id = "mpi-load",
     .code = "HVD7001",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"mpi"},
     .run = check_load,
     .title = "libmpi loads",
     .why = "A program or extension that was linked with MPI does not start without it.",
     .fix =
         {"RUN apt-get install -y openmpi-bin libopenmpi3 in the image; or use hvdrun, which needs "
          "no MPI",
          "an image with Open MPI, or command: [hvdrun, ...]",
          "apt-get install openmpi-bin libopenmpi3; then `ldd FILE` of what does not load"},
     .action = ACTION_INSTALL,
     .explain =
         "hvd-probe opens libmpi.so.40 (Open MPI), .12 (MPICH, Intel), .20, .80 in a child "
         "and calls MPI_Get_library_version, which is legal before MPI_Init. No MPI at all is "
         "fine.",
     .refs =
         {"https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man3/MPI_Get_library_version.3.html"}},
    {.id = "mpi-known-bad",
     .code = "HVD7002",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"mpi", "ucx", "framework"},
     .run = check_known_bad,
     .title = "version of MPI",
     .why = "Some releases hang or mix up messages; the log shows nothing, or a hang in MPI_Init.",
     .fix = {"an image with Open MPI 4.1.6 or newer", "an image with Open MPI 4.1.6 or newer",
             "install Open MPI 4.1.6 or newer, or start with hvdrun"},
     .action = ACTION_VERSION,
     .explain = "The version against the rules compiled in from Open MPI's release notes and "
                "Horovod's documents (--rules FILE replaces them). A fix that is missing warns; "
                "3.1.3, which hangs, fails.",
     .refs = {"https://docs.open-mpi.org/en/v5.0.x/release-notes/changelog/index.html",
              "https://horovod.readthedocs.io/en/stable/mpi.html"}},
    {.id = "mpi-path-mismatch",
     .code = "HVD7003",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"mpi"},
     .run = check_path,
     .title = "mpirun and libmpi belong together",
     .why =
         "With mpirun of another installation every rank believes it is alone (rank 0 of 1), or it "
         "ends with \"invalid header type\" or \"ess_env_module: Not found\".",
     .fix =
         {"ENV PATH=/opt/ompi/bin:$PATH LD_LIBRARY_PATH=/opt/ompi/lib:$LD_LIBRARY_PATH of one "
          "installation",
          "env: PATH and LD_LIBRARY_PATH of one installation",
          "export PATH=/opt/ompi/bin:$PATH LD_LIBRARY_PATH=/opt/ompi/lib:$LD_LIBRARY_PATH of one "
          "installation, on all machines"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "The first mpirun in PATH, links resolved, and the libmpi that the loader takes must "
         "lie under one prefix. MPICH's mpirun with Open MPI's library fails.",
     .refs = {"https://docs.open-mpi.org/en/v5.0.x/launching-apps/prerequisites.html"}},
    {.id = "mpi-orted",
     .code = "HVD7004",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"mpi"},
     .run = check_orted,
     .title = "Open MPI's daemon is in PATH",
     .why =
         "mpirun starts orted (Open MPI 5: prted) over ssh on each machine: \"orted: command not "
         "found\" ends the job.",
     .fix =
         {"ENV PATH=/opt/ompi/bin:$PATH", "env: [{name: PATH, value: /opt/ompi/bin:...}]",
          "put Open MPI's bin into PATH for non-interactive shells (/etc/environment), or mpirun "
          "--prefix /opt/ompi"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "orted (Open MPI 5: prted) in this PATH. A shell that ssh starts may have another PATH.",
     .refs = {"https://docs.open-mpi.org/en/v5.0.x/launching-apps/prerequisites.html"}},
    {.id = "mpi-root",
     .code = "HVD7005",
     .group = GROUP_MPI,
     .level = 1,
     .probes = {"mpi"},
     .run = check_root,
     .title = "mpirun as root",
     .why = "mpirun stops with \"mpirun has detected an attempt to run as root\".",
     .fix = {"docker run -e OMPI_ALLOW_RUN_AS_ROOT=1 -e OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ..., or "
             "--user 1000",
             "securityContext: {runAsUser: 1000}, or env OMPI_ALLOW_RUN_AS_ROOT=1 and "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
             "run as a user, or mpirun --allow-run-as-root"},
     .action = ACTION_ENVIRONMENT,
     .explain = "uid 0, mpirun of Open MPI in PATH, and not both variables (Open MPI 5 also reads "
                "PRTE_*) set to 1. hvdrun runs as root without options.",
     .refs = {"https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html"}},
    {.id = "mpi-btl-if",
     .code = "HVD7006",
     .group = GROUP_MPI,
     .level = 1,
     .run = check_btl_if,
     .title = "Open MPI's TCP interfaces",
     .why = "Open MPI refuses to start with both lists; an exclude list without lo makes ranks "
            "connect to 127.0.0.1 of themselves: \"connect() to 127.0.0.1 failed\".",
     .fix = {"docker run -e OMPI_MCA_btl_tcp_if_include=eth0 ... (one of the two)",
             "env: [{name: OMPI_MCA_btl_tcp_if_include, value: eth0}]",
             "export OMPI_MCA_btl_tcp_if_include=eth0; unset OMPI_MCA_btl_tcp_if_exclude"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "OMPI_MCA_btl_tcp_if_include and _exclude of this environment. An interface that is "
         "named must exist; networks (10.0.0.0/16) are taken as they are. Options -mca on mpirun's "
         "command line are not visible to this check.",
     .refs = {"https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/tcp.html"}},
};

const struct check_table checks_mpi = {rows, sizeof(rows) / sizeof(*rows)};
