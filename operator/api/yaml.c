/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml: see yaml.h.
 */
#include "operator/api/yaml.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"

#define FILE_MAX (1u << 20)
#define NEST_MAX 200 /* libyaml's time grows with the square of the nesting depth */

static bool nested_too_deep(const char *text, size_t len)
{
    int depth = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '[' || text[i] == '{')
            depth++;
        else if ((text[i] == ']' || text[i] == '}') && depth > 0)
            depth--;
        if (depth > NEST_MAX)
            return true;
    }
    return false;
}

int yaml_file_open(struct yaml_file *f, const char *path, struct err *err)
{
    yaml_parser_t parser;
    auto_free char *text = NULL, *copy = strdup(path);
    size_t len;
    int rc = fd_read_file(path, FILE_MAX, &text, &len);
    if (rc < 0)
        return err_sys(err, -rc, "kubeconfig %s", path);
    if (nested_too_deep(text, len))
        return err_set(err, EINVAL, "%s: nested more than 200 levels deep", path);
    if (!copy || !yaml_parser_initialize(&parser))
        return err_set(err, ENOMEM, "no memory");
    yaml_parser_set_input_string(&parser, (unsigned char *)text, len);
    if (yaml_parser_load(&parser, &f->doc))
        f->path = TAKE(copy);
    else if (parser.error == YAML_MEMORY_ERROR || !parser.problem)
        rc = err_set(err, ENOMEM, "%s: no memory", path);
    else
        rc = err_set(err, EINVAL, "%s:%zu: %s", path, parser.problem_mark.line + 1, parser.problem);
    yaml_parser_delete(&parser);
    return rc;
}

void yaml_file_close(struct yaml_file *f)
{
    yaml_document_delete(&f->doc);
    free(f->path);
}

char *yaml_file_beside(const struct yaml_file *f, char *path)
{
    const char *slash = strrchr(f->path, '/');
    char *joined;
    if (path[0] == '/' || !slash)
        return path;
    if (asprintf(&joined, "%.*s%s", (int)(slash - f->path + 1), f->path, path) < 0)
        joined = NULL;
    free(path);
    return joined;
}

yaml_node_t *yaml_top(struct yaml_file *f)
{
    return yaml_document_get_root_node(&f->doc);
}

yaml_node_t *yaml_find(struct yaml_file *f, const yaml_node_t *map, const char *key)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const char *is = yaml_text(yaml_document_get_node(&f->doc, p->key));
        if (is && strcmp(is, key) == 0)
            return yaml_document_get_node(&f->doc, p->value);
    }
    return NULL;
}

size_t yaml_length(const yaml_node_t *list)
{
    if (!list || list->type != YAML_SEQUENCE_NODE)
        return 0;
    return (size_t)(list->data.sequence.items.top - list->data.sequence.items.start);
}

yaml_node_t *yaml_item(struct yaml_file *f, const yaml_node_t *list, size_t i)
{
    if (i >= yaml_length(list))
        return NULL;
    return yaml_document_get_node(&f->doc, list->data.sequence.items.start[i]);
}

const char *yaml_text(const yaml_node_t *node)
{
    if (!node || node->type != YAML_SCALAR_NODE)
        return NULL;
    const char *text = (const char *)node->data.scalar.value;
    if (strlen(text) != node->data.scalar.length)
        return NULL;
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return plain && (strcmp(text, "null") == 0 || strcmp(text, "~") == 0) ? NULL : text;
}
