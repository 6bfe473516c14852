/* SPDX-License-Identifier: Apache-2.0
 *
 * facts: see facts.h.
 */
#include "diagnostics/facts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/proc.h"

#define HITS_MAX 64

int facts_gpus(const struct machine *m)
{
    const struct answer *nvml = machine_answer(m, "nvml");
    auto_free char **names = NULL;
    int n = 0;
    if (answer_has(nvml, "count"))
        return (int)answer_int(nvml, "count", 0);
    if (machine_list(m, "dev", &names, NULL) < 0)
        return -1;
    for (char **name = names; *name; name++)
        n += strncmp(*name, "nvidia", 6) == 0 && isdigit((unsigned char)(*name)[6]);
    return n;
}

void facts_sm(const struct machine *m, int *ret_oldest, int *ret_newest)
{
    *ret_oldest = *ret_newest = 0;
    const char *const probes[] = {"nvml", "cuda"};
    for (size_t p = 0; p < 2; p++) {
        const struct answer *a = machine_answer(m, probes[p]);
        int n = answer_count(a, "gpu");
        for (int i = 0; i < n; i++) {
            int sm = (int)answer_int_at(a, "gpu", i, "sm", 0);
            if (sm && (!*ret_oldest || sm < *ret_oldest))
                *ret_oldest = sm;
            if (sm > *ret_newest)
                *ret_newest = sm;
        }
    }
}

const char *facts_sm_text(int sm, char dst[16])
{
    snprintf(dst, 16, "%d.%d", sm / 10, sm % 10);
    return dst;
}

/* Walks /sys/class/infiniband; returns true at the first device of this kind. */
static bool any_rdma(const struct machine *m, const char *kind)
{
    auto_free char **names = NULL;
    char path[256], text[256];
    if (machine_list(m, "sys/class/infiniband", &names, NULL) < 0)
        return false;
    for (char **name = names; *name; name++) {
        if (!kind)
            return true;
        snprintf(path, sizeof(path), "sys/class/infiniband/%.100s/device/driver", *name);
        if (strcmp(kind, "efa") == 0) {
            const char *slash =
                machine_readlink(m, path, text, sizeof(text)) == 0 ? strrchr(text, '/') : NULL;
            if (strncmp(*name, "efa", 3) == 0 || (slash && strcmp(slash + 1, "efa") == 0))
                return true;
        } else if (machine_line(m, text, sizeof(text), "sys/class/infiniband/%s/ports/1/link_layer",
                                *name) == 0 &&
                   strcmp(text, "Ethernet") == 0) {
            return true;
        }
    }
    return false;
}

static bool in_container(const struct view *v)
{
    return proc_in_container(v->machine);
}

static bool infiniband(const struct view *v)
{
    return any_rdma(v->machine, NULL);
}

static bool roce(const struct view *v)
{
    return any_rdma(v->machine, "roce");
}

static bool efa(const struct view *v)
{
    return any_rdma(v->machine, "efa");
}

static bool ucx(const struct view *v)
{
    return answer_count(machine_answer(v->machine, "ucx"), "lib") > 0;
}

static bool nvlink(const struct view *v)
{
    return answer_int_at(machine_answer(v->machine, "nvml"), "gpu", 0, "links", 0) > 0;
}

static bool stack_unlimited(const struct view *v)
{
    uint64_t soft, hard;
    return proc_limit(v->machine, "Max stack size", &soft, &hard) == 0 && soft == PROC_UNLIMITED;
}

static bool no_sys_nice(const struct view *v)
{
    return proc_capable(v->machine, PROC_CAP_SYS_NICE) == 0;
}

static bool gid_index_set(const struct view *v)
{
    const char *value = machine_env(v->machine, "NCCL_IB_GID_INDEX");
    return value && *value && strcmp(value, "-1") != 0;
}

static bool no_gid_index(const struct view *v)
{
    return !gid_index_set(v);
}

static bool arm64(const struct view *v)
{
    return strcmp(answer_str(machine_answer(v->machine, "elf"), "machine", ""), "aarch64") == 0;
}

static const struct {
    const char *name;
    bool (*holds)(const struct view *v);
} plain[] = {
    {"container", in_container},
    {"infiniband", infiniband},
    {"roce", roce},
    {"efa", efa},
    {"ucx", ucx},
    {"nvlink", nvlink},
    {"stack-unlimited", stack_unlimited},
    {"no-sys-nice", no_sys_nice},
    {"gid-index-set", gid_index_set},
    {"no-gid-index", no_gid_index},
    {"arm64", arm64},
};

/* ---- facts with a number ---- */

static const char *const numbers[] = {"gpus", "ranks", "hosts", "cuda", "sm", "glibc", "openmpi"};

/* Writes the version that a name stands for to dst; false: unknown. older: in "sm<75" the oldest
 * GPU is compared, otherwise the newest. */
static bool number_of(const struct facts *f, const char *name, bool older, char dst[32])
{
    const struct machine *m = f->view->machine;
    const struct setting *s = f->view->setting;
    const char *text = NULL;
    int oldest, newest, n = 0;
    if (strcmp(name, "gpus") == 0)
        n = facts_gpus(m);
    else if (strcmp(name, "ranks") == 0)
        n = s->ranks;
    else if (strcmp(name, "hosts") == 0)
        n = s->local_ranks > 0 ? (s->ranks + s->local_ranks - 1) / s->local_ranks : 0;
    else if (strcmp(name, "cuda") == 0)
        text = f->cuda;
    else if (strcmp(name, "glibc") == 0)
        text = answer_str(machine_answer(m, "framework"), "glibc", NULL);
    else if (strcmp(name, "openmpi") == 0 &&
             strcmp(answer_str_at(machine_answer(m, "mpi"), "lib", 0, "vendor", ""), "openmpi") ==
                 0)
        text = answer_str_at(machine_answer(m, "mpi"), "lib", 0, "version", NULL);
    if (strcmp(name, "sm") == 0) {
        facts_sm(m, &oldest, &newest);
        n = older ? oldest : newest;
    }
    if (!text && n <= 0)
        return false;
    if (text)
        snprintf(dst, 32, "%.31s", text);
    else
        snprintf(dst, 32, "%d", n);
    return true;
}

/* Splits "sm>=90" into name, operator and value; false when it is not such a fact. */
static bool split(const char *fact, char name[32], const char **ret_op, const char **ret_value)
{
    size_t n = strcspn(fact, "<>="), ops = strspn(fact + n, "<>=");
    if (n == 0 || n >= 32 || ops == 0 || ops > 2 || !isdigit((unsigned char)fact[n + ops]))
        return false;
    memcpy(name, fact, n);
    name[n] = '\0';
    *ret_op = fact + n;
    *ret_value = fact + n + ops;
    return true;
}

static bool compare(const char *op, const char *a, const char *b)
{
    int order = version_compare(a, b);
    bool equal = op[1] == '=' || op[0] == '=';
    return (equal && order == 0) || (op[0] == '<' && order < 0) || (op[0] == '>' && order > 0);
}

bool facts_holds(void *arg, const char *fact)
{
    const struct facts *f = arg;
    char name[32], have[32];
    const char *op, *value;
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
        if (strcmp(plain[i].name, fact) == 0)
            return plain[i].holds(f->view);
    }
    return split(fact, name, &op, &value) && number_of(f, name, *op == '<', have) &&
           compare(op, have, value);
}

bool facts_known(const char *fact)
{
    char name[32];
    const char *op, *value;
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
        if (strcmp(plain[i].name, fact) == 0)
            return true;
    }
    if (!split(fact, name, &op, &value))
        return false;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        if (strcmp(numbers[i], name) == 0)
            return true;
    }
    return false;
}

/* ---- results ---- */

static void set_status(struct result *r, enum check_status status, const char *text)
{
    if (status == CHECK_FAIL)
        result_fail(r, "%s", text);
    else if (status == CHECK_WARN)
        result_warn(r, "%s", text);
    else
        result_info(r, "%s", text);
}

/* Writes whole rules with their references into the result's why, as many as fit. */
static void say_why(struct result *r, const struct rule *const *hits, size_t n)
{
    char why[RESULT_TEXT] = "";
    const size_t room = sizeof(why) - sizeof("; and 99 more");
    size_t at = 0, said = 0;
    for (; said < n; said++) {
        const struct rule *h = hits[said];
        size_t need = strlen(h->text) + strlen(h->reference) + sizeof("; ()");
        if (at + need > room)
            break;
        at += (size_t)snprintf(why + at, sizeof(why) - at, "%s%s (%s)", said ? "; " : "", h->text,
                               h->reference);
    }
    if (said > 0 && said < n)
        snprintf(why + at, sizeof(why) - at, "; and %zu more", n - said);
    result_why(r, "%s", why);
}

bool facts_judge(struct result *r, const struct facts *facts, const char *component,
                 const char *version, const char *what)
{
    const struct rule *hits[HITS_MAX];
    const struct rule_facts asked = {.holds = facts_holds, .arg = (void *)facts};
    char text[RESULT_TEXT];
    size_t n = rules_hits(facts->view->rules, component, version, &asked, hits, HITS_MAX);
    if (n == 0)
        return false;
    snprintf(text, sizeof(text), "%s: %s", what, hits[0]->text);
    size_t len = strlen(text);
    if (n > 1 && len < sizeof(text))
        snprintf(text + len, sizeof(text) - len, " (and %zu more)", n - 1);
    set_status(r, hits[0]->severity, text);
    result_observed(r, "%s", version);
    for (int place = 0; place < FIX_PLACES; place++)
        result_fix(r, (enum fix_place)place, "%s", hits[0]->fix);
    say_why(r, hits, n);
    return true;
}
