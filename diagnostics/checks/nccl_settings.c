/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_settings: NCCL's variables and configuration files: misspelt names, variables that cost
 * speed. nccl.c has the library itself. See check.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/libs.h"
#include "diagnostics/checks/nccl_env.h"
#include "diagnostics/facts.h"

#define NAME_LEN 64

/* The name of "NCCL_X=1" or "NCCL_X = 1"; false: another kind of line. */
static bool nccl_name(const char *assignment, char dst[NAME_LEN])
{
    size_t n = strcspn(assignment, "= \t\n");
    if (strncmp(assignment, "NCCL_", 5) != 0 || n >= NAME_LEN)
        return false;
    memcpy(dst, assignment, n);
    dst[n] = '\0';
    return true;
}

static void add_unknown(char *list, size_t size, const char *name)
{
    size_t at = strlen(list);
    const char *near = nccl_env_nearest(name);
    if (at < size)
        snprintf(list + at, size - at, "%s%s%s%s%s", at ? ", " : "", name,
                 near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static void check_unknown(const struct view *v, struct result *r)
{
    char name[NAME_LEN], list[RESULT_TEXT / 2] = "";
    const char *variable;
    int known = 0, unknown = 0;
    for (size_t i = 0; (variable = machine_env_at(v->machine, i)); i++) {
        if (!nccl_name(variable, name))
            continue;
        if (nccl_env_known(name)) {
            known++;
            continue;
        }
        unknown++;
        add_unknown(list, sizeof(list), name);
    }
    result_observed(r, "%d", unknown);
    result_expected(r, "0");
    if (unknown)
        result_warn(r, "NCCL does not know %s", list);
    else if (known)
        result_pass(r, "%d NCCL_* variable%s, all known", known, known == 1 ? "" : "s");
    else
        result_pass(r, "no NCCL_* variable is set");
}

/* ---- switches ---- */

enum cost { COST_ALWAYS, COST_WITH_GPUS, COST_WITH_RDMA };

static const struct {
    const char *name, *value; /* value NULL: any */
    enum cost cost;
    const char *what;
} switches[] = {
    {"NCCL_P2P_DISABLE", "1", COST_WITH_GPUS, "no direct access between GPUs"},
    {"NCCL_P2P_LEVEL", "LOC", COST_WITH_GPUS, "no direct access between GPUs"},
    {"NCCL_SHM_DISABLE", "1", COST_WITH_GPUS, "no shared memory between ranks"},
    {"NCCL_IB_DISABLE", "1", COST_WITH_RDMA, "InfiniBand and RoCE are not used"},
    {"NCCL_NET_GDR_LEVEL", "LOC", COST_WITH_RDMA, "no GPUDirect RDMA"},
    {"NCCL_NVLS_ENABLE", "0", COST_WITH_GPUS, "no NVLink SHARP"},
    {"NCCL_MAX_NCHANNELS", "1", COST_ALWAYS, "one channel only"},
    {"NCCL_LAUNCH_MODE", "GROUP", COST_ALWAYS, "slower launches"},
    {"NCCL_CHECK_POINTERS", "1", COST_ALWAYS, "a check at each call"},
    {"NCCL_DEBUG", "TRACE", COST_ALWAYS, "a line for each call"},
};

static bool costs(const struct view *v, enum cost cost)
{
    const struct facts facts = {.view = v};
    if (cost == COST_WITH_GPUS)
        return facts_gpus(v->machine) != 1 || v->setting->local_ranks > 1;
    if (cost == COST_WITH_RDMA)
        return facts_holds((void *)&facts, "infiniband");
    return true;
}

static void check_perf(const struct view *v, struct result *r)
{
    char list[RESULT_TEXT / 2] = "", harmless[RESULT_TEXT / 2] = "";
    for (size_t i = 0; i < sizeof(switches) / sizeof(*switches); i++) {
        const char *value = machine_env(v->machine, switches[i].name);
        if (!value || (switches[i].value && strcmp(value, switches[i].value) != 0))
            continue;
        bool bad = costs(v, switches[i].cost);
        char *dst = bad ? list : harmless;
        size_t at = strlen(dst);
        snprintf(dst + at, sizeof(list) - at, "%s%s=%s (%s)", at ? ", " : "", switches[i].name,
                 value, switches[i].what);
    }
    result_observed(r, "%s", *list ? list : "-");
    result_expected(r, "none of them");
    if (*list)
        result_warn(r, "%s", list);
    else if (*harmless)
        result_info(r, "%s; costs nothing on this machine", harmless);
    else
        result_pass(r, "no variable that switches NCCL's fast paths off");
}

/* ---- RoCE ---- */

static void check_gid(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "nccl");
    const struct facts facts = {.view = v};
    const char *index = machine_env(v->machine, "NCCL_IB_GID_INDEX");
    char what[96];
    if (!result_needs(r, a, "NCCL"))
        return;
    const char *version = libs_version(a, 0);
    result_observed(r, "%s", index ? index : "not set");
    if (!version) {
        result_skip(r, "no NCCL here, or its version is unknown");
        return;
    }
    snprintf(what, sizeof(what), "NCCL %.40s, NCCL_IB_GID_INDEX %.20s", version,
             index ? index : "not set");
    if (!facts_judge(r, &facts, "nccl-gid", version, what))
        result_pass(r, "%s", what);
}

/* ---- configuration files ---- */

/* Adds to *ret_n how many NCCL_* variables a file sets, and copies the first name that NCCL does
 * not know to unknown, unless that holds one already. 0 or -errno. */
static int scan_file(const struct machine *m, const char *path, char unknown[NAME_LEN], int *ret_n)
{
    char name[NAME_LEN];
    char *save;
    auto_free char *text = NULL;
    int rc = machine_read(m, path[0] == '/' ? path + 1 : path, &text, NULL);
    if (rc < 0)
        return rc;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        line += strspn(line, " \t");
        if (!nccl_name(line, name))
            continue;
        (*ret_n)++;
        if (!unknown[0] && !nccl_env_known(name))
            memcpy(unknown, name, sizeof(name));
    }
    return 0;
}

static void check_file(const struct view *v, struct result *r)
{
    const struct machine *m = v->machine;
    char home[512] = "", unknown[NAME_LEN] = "", found[RESULT_TEXT / 2] = "";
    const char *own = machine_env(m, "NCCL_CONF_FILE"), *dir = machine_env(m, "HOME");
    int n = 0, rc = -1;
    if (dir)
        snprintf(home, sizeof(home), "%.480s/.nccl.conf", dir);
    const char *paths[] = {own ? own : home, "/etc/nccl.conf"};
    for (int i = 0; i < 2; i++) {
        size_t at = strlen(found);
        int one = *paths[i] ? scan_file(m, paths[i], unknown, &n) : -1;
        if (i == 0)
            rc = one;
        if (one == 0)
            snprintf(found + at, sizeof(found) - at, "%s%s", at ? " and " : "", paths[i]);
    }
    result_observed(r, "%s", *found ? found : "none");
    if (own && *own && rc < 0)
        result_warn(r, "NCCL_CONF_FILE=%s: %s", own, strerror(-rc));
    else if (unknown[0])
        result_warn(r, "%s sets %s, which NCCL does not know", found, unknown);
    else if (n)
        result_info(r, "%s sets %d variable%s; the environment overrides it", found, n,
                    n == 1 ? "" : "s");
    else if (*found)
        result_pass(r, "%s sets nothing", found);
    else
        result_pass(r, "no nccl.conf");
}

#define NCCL_ENV "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

static const struct check rows[] = {
    {.id = "nccl-env-unknown",
     .code = "HVD6004",
     .group = GROUP_NCCL,
     .level = 1,
     .run = check_unknown,
     .title = "NCCL variables are spelled right",
     .why = "NCCL ignores variables that it does not know without a warning: a mistyped variable "
            "has no effect.",
     .fix = {"docker run -e NAME=VALUE with the right name", "env: [{name: NAME, value: VALUE}]",
             "unset the wrong name, export the right one"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "Every NCCL_* of this environment compared with the names that NCCL 2.4 to 2.30, its "
         "plugins, torch and common images use. A name of a newer NCCL may be unknown here.",
     .refs = {NCCL_ENV}},
    {.id = "nccl-env-perf-off",
     .code = "HVD6005",
     .group = GROUP_NCCL,
     .level = 1,
     .probes = {"nvml"},
     .run = check_perf,
     .title = "NCCL's fast paths are on",
     .why = "These variables are for debugging and easily forgotten: training works, but several "
            "times slower.",
     .fix =
         {"docker run without -e NCCL_P2P_DISABLE=1 and the like; ENV lines of the image as well",
          "remove the variable from env:",
          "unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_IB_DISABLE"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "NCCL_P2P_DISABLE=1, NCCL_P2P_LEVEL=LOC, NCCL_SHM_DISABLE=1 and NCCL_NVLS_ENABLE=0 matter "
         "with more than one GPU, NCCL_IB_DISABLE=1 and NCCL_NET_GDR_LEVEL=LOC where RDMA devices "
         "are, the others always. They only cost speed: this warns, it never fails.",
     .refs = {NCCL_ENV "#nccl-p2p-disable"}},
    {.id = "nccl-gid-index",
     .code = "HVD6006",
     .group = GROUP_NCCL,
     .level = 1,
     .profiles = PROFILE_GPU,
     .probes = {"nccl"},
     .run = check_gid,
     .title = "the GID index on RoCE",
     .why =
         "With the wrong GID queue pairs do not connect: \"ibv_modify_qp failed with error Invalid "
         "argument\", or RDMA goes through a network that does not route it.",
     .fix = {"docker run without -e NCCL_IB_GID_INDEX (NCCL 2.21 and newer); with it before 2.21",
             "remove NCCL_IB_GID_INDEX from env: with NCCL 2.21 and newer",
             "unset NCCL_IB_GID_INDEX (NCCL 2.21 and newer); export NCCL_IB_GID_INDEX=3 before"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "NCCL chooses the RoCE v2 GID itself since 2.21. Before, index 0 (RoCE v1) was taken "
         "unless the variable said otherwise.",
     .refs = {NCCL_ENV "#nccl-ib-gid-index"}},
    {.id = "nccl-conf-file",
     .code = "HVD6007",
     .group = GROUP_NCCL,
     .level = 1,
     .run = check_file,
     .title = "NCCL's configuration files",
     .why = "A forgotten nccl.conf on one machine makes its ranks choose another algorithm or "
            "interface than all others: slow, or a hang.",
     .fix = {"RUN rm /etc/nccl.conf in the image", "an image without /etc/nccl.conf",
             "remove /etc/nccl.conf and ~/.nccl.conf, or make them the same on all machines"},
     .action = ACTION_ENVIRONMENT,
     .explain = "/etc/nccl.conf, and NCCL_CONF_FILE or ~/.nccl.conf. Variables of the environment "
                "win. A file that is named and not there, or names that NCCL does not know, warn.",
     .refs = {NCCL_ENV "#nccl-conf-file"}},
};

const struct check_table checks_nccl_settings = {rows, sizeof(rows) / sizeof(*rows)};
