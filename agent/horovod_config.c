/* SPDX-License-Identifier: Apache-2.0
 *
 * horovod_config: see horovod_config.h.
 */
#include "agent/horovod_config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/yaml_file.h"
#include "core/base/names.h"

struct reading {
    const char *path;
    yaml_document_t doc;
    horovod_config_f *take;
    horovod_unknown_f *unknown;
    void *arg;
};

/* The values of each section. The option is "--", the section's prefix and the key, with - instead
 * of
 * _: log_file in autotune is --autotune-log-file. The key "enabled" is the section: --autotune. */
static const struct section {
    const char *name, *prefix, *keys;
} sections[] = {
    {"params", "",
     "fusion_threshold_mb|cycle_time_ms|cache_capacity|hierarchical_allreduce|"
     "hierarchical_allgather|torus_allreduce"},
    {"autotune", "autotune-",
     "enabled|log_file|warmup_samples|steps_per_sample|bayes_opt_max_samples|"
     "gaussian_process_noise"},
    {"timeline", "timeline-", "filename|mark_cycles"},
    {"stall_check", "stall-check-", "enabled|warning_time_seconds|shutdown_time_seconds"},
    {"library_options", "",
     "mpi_threads_disable|num_nccl_streams|thread_affinity|gloo_timeout_seconds"},
    {"logging", "log-", "level|with_timestamp|hide_timestamp"},
};

static void place(const struct reading *r, const yaml_node_t *node, char *dst, size_t size)
{
    snprintf(dst, size, "%s:%zu", r->path, node->start_mark.line + 1);
}

static int refuse(const struct reading *r, const yaml_node_t *node, const char *what,
                  struct err *err)
{
    char at[512];
    place(r, node, at, sizeof(at));
    return err_set(err, EINVAL, "%s: %s", at, what);
}

static const char *text_of(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* Whether it is YAML's null: nothing, ~ or null, without quotes. */
static bool is_null(const yaml_node_t *node)
{
    const char *text = text_of(node);
    return text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

static int pass(struct reading *r, const struct section *section, const yaml_node_t *key,
                const yaml_node_t *value, struct err *err)
{
    char option[128], at[512];
    const char *name = text_of(key), *text = text_of(value);
    if (!name || !text)
        return refuse(r, key, "want a name and one value", err);
    if (is_null(value))
        return 0;
    place(r, key, at, sizeof(at));
    if (!names_have(section->keys, name, strlen(name)))
        return r->unknown(r->arg, name, at);
    bool whole = strcmp(name, "enabled") == 0;
    int n = snprintf(option, sizeof(option), "--%s%s", section->prefix, whole ? "" : name);
    if (whole && option[n - 1] == '-')
        option[n - 1] = '\0';
    for (char *c = option; *c; c++)
        if (*c == '_')
            *c = '-';
    return r->take(r->arg, option, text, at, err);
}

static int read_section(struct reading *r, const yaml_node_t *key, const yaml_node_t *map,
                        struct err *err)
{
    const struct section *section = NULL;
    char at[512];
    for (size_t i = 0; i < sizeof(sections) / sizeof(*sections) && text_of(key); i++)
        if (strcmp(sections[i].name, text_of(key)) == 0)
            section = &sections[i];
    place(r, key, at, sizeof(at));
    if (text_of(key) && strcmp(text_of(key), "controller") == 0) {
        const char *text = text_of(map);
        if (!text || (strcasecmp(text, "gloo") != 0 && strcasecmp(text, "mpi") != 0))
            return refuse(r, map, "controller: want gloo or mpi", err);
        return 0; /* hvd needs neither */
    }
    if (!section)
        return r->unknown(r->arg, text_of(key) ? text_of(key) : "", at);
    if (is_null(map))
        return 0; /* an empty section */
    if (map->type != YAML_MAPPING_NODE)
        return refuse(r, map, "want a mapping of names and values", err);
    int rc = 0;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start;
         p < map->data.mapping.pairs.top && rc == 0; p++)
        rc = pass(r, section, yaml_document_get_node(&r->doc, p->key),
                  yaml_document_get_node(&r->doc, p->value), err);
    return rc;
}

int horovod_config_read(const char *path, horovod_config_f *take, horovod_unknown_f *unknown,
                        void *arg, struct err *err)
{
    struct reading r = {.path = path, .take = take, .unknown = unknown, .arg = arg};
    int rc = yaml_file_read(path, "configuration", &r.doc, err);
    if (rc < 0)
        return rc;
    const yaml_node_t *root = yaml_document_get_root_node(&r.doc);
    if (root && root->type != YAML_MAPPING_NODE)
        rc = refuse(&r, root, "want a mapping of sections", err);
    for (yaml_node_pair_t *p = root && rc == 0 ? root->data.mapping.pairs.start : NULL;
         p && p < root->data.mapping.pairs.top && rc == 0; p++)
        rc = read_section(&r, yaml_document_get_node(&r.doc, p->key),
                          yaml_document_get_node(&r.doc, p->value), err);
    yaml_document_delete(&r.doc);
    return rc;
}
