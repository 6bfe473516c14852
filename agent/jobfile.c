/* SPDX-License-Identifier: Apache-2.0
 *
 * jobfile: see jobfile.h. Uses libyaml's documents; a node's field path is passed along for
 * messages.
 */
#include "agent/jobfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "agent/expand.h"
#include "agent/jobfields.h"
#include "agent/yaml_file.h"
#include "core/base/cleanup.h"
#include "core/member/protocol.h"

#define FIELDS_MAX 1000 /* most fields of one mapping */
#define VARS_MAX   5000

struct reading {
    const char *path; /* path of the job file, for messages */
    yaml_document_t doc;
    char *ignored;
    size_t size;
    size_t ngiven;          /* entries of the job's env that override the file's */
    const yaml_node_t *key; /* key of the pair being read */
    const char *parent;     /* in a part of the spec for a cluster: the path of that map */
};

static int fail(const struct reading *r, const yaml_node_t *node, const char *field,
                const char *what, struct err *err)
{
    return err_set(err, EINVAL, "%s:%zu: %s: %s", r->path, node ? node->start_mark.line + 1 : 1,
                   field, what);
}

/* Adds name to the list of ignored fields, once. */
static void ignore(struct reading *r, const char *name)
{
    if (!*name)
        name = "\"\""; /* an empty key would make the search below loop */
    size_t len = strlen(r->ignored), n = strlen(name);
    for (char *p = r->ignored; (p = strstr(p, name)); p += n)
        if ((p == r->ignored || p[-1] == ' ') && (!p[n] || p[n] == ','))
            return;
    snprintf(r->ignored + len, r->size - len, "%s%s", len ? ", " : "", name);
}

/* Called for each pair of a mapping. */
typedef int pair_f(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                   struct err *err);

static int each_pair(struct reading *r, struct job *job, yaml_node_t *node, const char *field,
                     pair_f *take, struct err *err)
{
    if (!node || node->type != YAML_MAPPING_NODE)
        return fail(r, node, field, "want a mapping", err);
    if (node->data.mapping.pairs.top - node->data.mapping.pairs.start > FIELDS_MAX)
        return fail(r, node, field, "too many fields", err);
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
         p++) {
        yaml_node_t *key = yaml_document_get_node(&r->doc, p->key);
        yaml_node_t *value = yaml_document_get_node(&r->doc, p->value);
        if (key->type != YAML_SCALAR_NODE)
            return fail(r, key, field, "a key that is no word", err);
        for (yaml_node_pair_t *q = node->data.mapping.pairs.start; q < p; q++) {
            yaml_node_t *before = yaml_document_get_node(&r->doc, q->key);
            if (strcmp((char *)before->data.scalar.value, (char *)key->data.scalar.value) == 0)
                return fail(r, key, (char *)key->data.scalar.value, "given twice", err);
        }
        r->key = key;
        int rc = take(r, job, (char *)key->data.scalar.value, value, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Gets a scalar's text, which must not contain a NUL. */
static int text_of(const struct reading *r, const yaml_node_t *node, const char *field,
                   const char **ret, struct err *err)
{
    if (node->type != YAML_SCALAR_NODE)
        return fail(r, node, field, "want a text", err);
    if (strlen((char *)node->data.scalar.value) != node->data.scalar.length)
        return fail(r, node, field, "a NUL in it", err);
    *ret = (char *)node->data.scalar.value;
    return 0;
}

static int number_of(const struct reading *r, const yaml_node_t *node, const char *field, int *ret,
                     struct err *err)
{
    const char *text = "";
    char *end, what[96];
    int rc = text_of(r, node, field, &text, err);
    if (rc < 0)
        return rc;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < 1 || n > MEMBER_RANKS_MAX) {
        snprintf(what, sizeof(what), "\"%.40s\": want an integer from 1 to %d", text,
                 MEMBER_RANKS_MAX);
        return fail(r, node, field, what, err);
    }
    *ret = (int)n;
    return 0;
}

static int bool_of(const struct reading *r, const yaml_node_t *node, const char *field, bool *ret,
                   struct err *err)
{
    const char *text = "";
    int rc = text_of(r, node, field, &text, err);
    bool yes = strcmp(text, "true") == 0;
    if (rc == 0 && !yes && strcmp(text, "false") != 0)
        rc = fail(r, node, field, "want true or false", err);
    if (rc == 0)
        *ret = yes;
    return rc;
}

/* Appends a list of texts to argv. */
static int add_words(struct reading *r, struct job *job, yaml_node_t *node, const char *field,
                     struct err *err)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return fail(r, node, field, "want a list of texts", err);
    size_t n = strings_count(job->argv);
    size_t more = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (more == 0)
        return 0;
    char **grown = realloc(job->argv, (n + more + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory");
    job->argv = grown;
    memset(grown + n, 0, (more + 1) * sizeof(*grown));
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top;
         i++) {
        yaml_node_t *item = yaml_document_get_node(&r->doc, *i);
        const char *text;
        int rc = text_of(r, item, field, &text, err);
        if (rc < 0)
            return rc;
        grown[n] = expand(text, job->env);
        if (!grown[n++])
            return err_set(err, ENOMEM, "no memory");
    }
    return 0;
}

static int copy_text(struct reading *r, yaml_node_t *node, const char *field, char **dst,
                     struct err *err)
{
    const char *text = "";
    int rc = text_of(r, node, field, &text, err);
    if (rc < 0 || *dst || !*text) /* an empty value counts as absent */
        return rc;
    *dst = strdup(text);
    return *dst ? 0 : err_set(err, ENOMEM, "no memory");
}

/* ---- the parts of a manifest ---------------------------------------------------------------- */

static yaml_node_t *find(struct reading *r, yaml_node_t *map, const char *key)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        yaml_node_t *k = yaml_document_get_node(&r->doc, p->key);
        if (k->type == YAML_SCALAR_NODE && strcmp((char *)k->data.scalar.value, key) == 0)
            return yaml_document_get_node(&r->doc, p->value);
    }
    return NULL;
}

/* Sets one variable of the container, unless the command line has set it (-x). */
static int set_variable(const struct reading *r, struct job *job, const char *name,
                        const char *value)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < r->ngiven; i++)
        if (strncmp(job->env[i], name, n) == 0 && job->env[i][n] == '=')
            return 0;
    auto_free char *expanded = expand(value, job->env);
    return expanded ? job_setenv(job, name, expanded) : -ENOMEM;
}

static int take_env(struct reading *r, struct job *job, yaml_node_t *list, struct err *err)
{
    const char *field = "spec.template.spec.containers[0].env", *name, *value = "";
    if (list->type != YAML_SEQUENCE_NODE)
        return fail(r, list, field, "want a list of name and value", err);
    if (list->data.sequence.items.top - list->data.sequence.items.start > VARS_MAX)
        return fail(r, list, field, "too many variables", err);
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top;
         i++) {
        yaml_node_t *item = yaml_document_get_node(&r->doc, *i);
        yaml_node_t *name_node = find(r, item, "name"), *value_node = find(r, item, "value");
        if (!name_node)
            return fail(r, item, field, "an entry without name", err);
        int rc = text_of(r, name_node, field, &name, err);
        if (rc == 0 && (!*name || strchr(name, '=')))
            rc = fail(r, name_node, field, "not a name of a variable", err);
        if (rc == 0 && value_node)
            rc = text_of(r, value_node, field, &value, err);
        if (rc < 0)
            return rc;
        if (find(r, item, "valueFrom")) {
            ignore(r, "env.valueFrom");
            continue;
        }
        rc = set_variable(r, job, name, value_node ? value : "");
        if (rc < 0)
            return err_sys(err, -rc, "%s", r->path);
    }
    return 0;
}

static int take_container(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                          struct err *err)
{
    if (strcmp(key, "env") == 0)
        return take_env(r, job, value, err);
    if (strcmp(key, "workingDir") == 0)
        return copy_text(r, value, "spec.template.spec.containers[0].workingDir", &job->cwd, err);
    if (strcmp(key, "command") != 0 && strcmp(key, "args") != 0 && strcmp(key, "name") != 0)
        ignore(r, key);
    return 0;
}

static int take_pod_spec(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                         struct err *err)
{
    const char *field = "spec.template.spec.containers";
    if (strcmp(key, "containers") != 0) {
        ignore(r, key);
        return 0;
    }
    if (value->type != YAML_SEQUENCE_NODE ||
        value->data.sequence.items.start == value->data.sequence.items.top)
        return fail(r, value, field, "want a list with a container", err);
    if (value->data.sequence.items.top - value->data.sequence.items.start > 1)
        ignore(r, "containers after the first");
    yaml_node_t *first = yaml_document_get_node(&r->doc, *value->data.sequence.items.start);
    /* command before args, whatever the order in the file. */
    yaml_node_t *command = find(r, first, "command"), *args = find(r, first, "args");
    int rc = each_pair(r, job, first, "spec.template.spec.containers[0]", take_container, err);
    if (rc == 0 && !command)
        rc = fail(r, first, "spec.template.spec.containers[0].command",
                  "missing (an image's own command is not known here)", err);
    if (rc == 0)
        rc = add_words(r, job, command, "spec.template.spec.containers[0].command", err);
    if (rc == 0 && args)
        rc = add_words(r, job, args, "spec.template.spec.containers[0].args", err);
    if (rc == 0 && !job->argv)
        rc = fail(r, command, "spec.template.spec.containers[0].command", "empty", err);
    return rc;
}

static int take_template(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                         struct err *err)
{
    if (strcmp(key, "spec") == 0)
        return each_pair(r, job, value, "spec.template.spec", take_pod_spec, err);
    ignore(r, strcmp(key, "metadata") == 0 ? "template.metadata" : key);
    return 0;
}

/* A field that an HvdJob's spec does not have is an error: else a typo would be ignored. */
static int unknown(const struct reading *r, const char *parent, const char *key, struct err *err)
{
    char hint[256];
    jobfield_hint(parent, key, hint, sizeof(hint));
    return err_set(err, EINVAL, "%s:%zu: %s.%.60s: %s", r->path, r->key->start_mark.line + 1,
                   parent, key, hint);
}

static int take_cluster(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                        struct err *err)
{
    (void)job, (void)value;
    return jobfield_find(r->parent, key) != JOBFIELD_UNKNOWN ? 0 : unknown(r, r->parent, key, err);
}

static int take_doctor(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                       struct err *err)
{
    enum doctor_policy policy;
    const char *word;
    if (jobfield_find("spec.doctor", key) == JOBFIELD_UNKNOWN)
        return unknown(r, "spec.doctor", key, err);
    if (strcmp(key, "policy") != 0) {
        ignore(r, "doctor.level");
        return 0;
    }
    int rc = text_of(r, value, "spec.doctor.policy", &word, err);
    if (rc == 0 && doctor_policy_parse(word, &policy) < 0)
        rc = fail(r, value, "spec.doctor.policy", "want fail, warn or off", err);
    if (rc == 0 && !job->doctor_said)
        job->doctor = policy;
    job->doctor_said |= rc == 0;
    return rc;
}

static int take_spec(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                     struct err *err)
{
    if (strcmp(key, "template") == 0)
        return each_pair(r, job, value, "spec.template", take_template, err);
    char parent[64];
    switch (jobfield_find("spec", key)) {
    case JOBFIELD_UNKNOWN:
        return unknown(r, "spec", key, err);
    case JOBFIELD_USED:
        return 0;
    case JOBFIELD_USED_MAP:
        return each_pair(r, job, value, "spec.doctor", take_doctor, err);
    case JOBFIELD_CLUSTER:
        break;
    case JOBFIELD_CLUSTER_MAP:
        snprintf(parent, sizeof(parent), "spec.%s", key);
        r->parent = parent;
        int rc = each_pair(r, job, value, parent, take_cluster, err);
        r->parent = NULL;
        if (rc < 0)
            return rc;
    }
    ignore(r, key);
    return 0;
}

static int take_metadata(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                         struct err *err)
{
    if (strcmp(key, "name") == 0)
        return copy_text(r, value, "metadata.name", &job->name, err);
    return 0; /* labels, annotations, namespace: have no meaning here */
}

static int take_top(struct reading *r, struct job *job, const char *key, yaml_node_t *value,
                    struct err *err)
{
    if (strcmp(key, "metadata") == 0)
        return each_pair(r, job, value, "metadata", take_metadata, err);
    if (strcmp(key, "spec") == 0)
        return each_pair(r, job, value, "spec", take_spec, err);
    if (strcmp(key, "apiVersion") != 0 && strcmp(key, "kind") != 0)
        ignore(r, key);
    return 0;
}

/* ---- document ------------------------------------------------------------------------------ */

static int expect_text(struct reading *r, yaml_node_t *root, const char *key, const char *want,
                       struct err *err)
{
    yaml_node_t *node = find(r, root, key);
    char what[128];
    if (node && node->type == YAML_SCALAR_NODE &&
        strcmp((char *)node->data.scalar.value, want) == 0)
        return 0;
    snprintf(what, sizeof(what), "want %s", want);
    return fail(r, node ? node : root, key, what, err);
}

/* Reads the number of workers in the field key into *ret_workers, which stays as it is if the field
 * is absent. Stores the number of their ranks in *ret, unless the command line has set *ret. */
static int take_size(struct reading *r, yaml_node_t *spec, const char *key, int slots,
                     int *ret_workers, int *ret, struct err *err)
{
    char field[64];
    yaml_node_t *node = find(r, spec, key);
    if (!node)
        return 0;
    snprintf(field, sizeof(field), "spec.%s", key);
    int rc = number_of(r, node, field, ret_workers, err);
    if (rc == 0 && (long)slots * *ret_workers > MEMBER_RANKS_MAX)
        rc = fail(r, node, field, "too many ranks", err);
    if (rc == 0 && *ret == 0)
        *ret = *ret_workers * slots;
    return rc;
}

/* Checks that a, the value of key, is at most b. */
static int check_order(struct reading *r, yaml_node_t *spec, const char *key, int a,
                       const char *key_b, int b, struct err *err)
{
    yaml_node_t *node = find(r, spec, key);
    if (a == 0 || b == 0 || a <= b)
        return 0;
    return err_set(err, EINVAL, "%s:%zu: spec.%s: %d is more than %s %d", r->path,
                   node ? node->start_mark.line + 1 : 1, key, a, key_b, b);
}

/* Converts workers of an HvdJob to ranks: slotsPerWorker for each worker. */
static int take_sizes(struct reading *r, struct job *job, yaml_node_t *spec, struct err *err)
{
    int slots = 1, workers = 0, min = 0, max = 0;
    yaml_node_t *node = find(r, spec, "slotsPerWorker");
    int rc = node ? number_of(r, node, "spec.slotsPerWorker", &slots, err) : 0;
    rc = rc < 0 ? rc : take_size(r, spec, "workers", slots, &workers, &job->np, err);
    rc = rc < 0 ? rc : take_size(r, spec, "minWorkers", slots, &min, &job->min_np, err);
    rc = rc < 0 ? rc : take_size(r, spec, "maxWorkers", slots, &max, &job->max_np, err);
    rc = rc < 0 ? rc : check_order(r, spec, "minWorkers", min, "maxWorkers", max, err);
    rc = rc < 0 ? rc : check_order(r, spec, "minWorkers", min, "workers", workers, err);
    rc = rc < 0 ? rc : check_order(r, spec, "workers", workers, "maxWorkers", max, err);
    if (rc == 0 && job->np == 0)
        job->np = min > 0 ? min * slots : slots;
    return rc;
}

/* The command line can also ask for it. */
static int take_places(struct reading *r, struct job *job, yaml_node_t *spec, struct err *err)
{
    yaml_node_t *node = find(r, spec, "keepPlaces");
    bool keep = false;
    int rc = node ? bool_of(r, node, "spec.keepPlaces", &keep, err) : 0;
    if (rc == 0 && keep && !job->min_np && !job->max_np)
        rc = fail(r, node, "spec.keepPlaces", "it needs minWorkers or maxWorkers", err);
    job->keep_places |= keep;
    return rc;
}

static int read_document(struct reading *r, struct job *job, struct err *err)
{
    yaml_node_t *root = yaml_document_get_root_node(&r->doc);
    if (!root)
        return fail(r, NULL, "HvdJob", "the file is empty", err);
    int rc = expect_text(r, root, "apiVersion", "hvd.dev/v1alpha1", err);
    rc = rc < 0 ? rc : expect_text(r, root, "kind", "HvdJob", err);
    rc = rc < 0 ? rc : each_pair(r, job, root, "HvdJob", take_top, err);
    if (rc < 0)
        return rc;
    yaml_node_t *spec = find(r, root, "spec");
    if (!job->argv)
        return fail(r, spec ? spec : root, "spec.template.spec.containers", "missing", err);
    rc = take_sizes(r, job, spec, err);
    return rc < 0 ? rc : take_places(r, job, spec, err);
}

int jobfile_read(struct job *job, const char *path, char *ret_ignored, size_t size, struct err *err)
{
    struct reading r = {
        .path = path, .ignored = ret_ignored, .size = size, .ngiven = strings_count(job->env)};
    ret_ignored[0] = '\0';
    int rc = yaml_file_read(path, "job file", &r.doc, err);
    if (rc < 0)
        return rc;
    rc = read_document(&r, job, err);
    yaml_document_delete(&r.doc);
    return rc;
}
