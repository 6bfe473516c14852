/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml: a foreign YAML file as libyaml's document, and lookups that take anything: a node that is
 * not there or is of another kind is NULL, and NULL may be passed on. Called by kubeconfig.c.
 */
#ifndef HVD_OPERATOR_API_YAML_H
#define HVD_OPERATOR_API_YAML_H

#include <stddef.h>
#include <yaml.h>

#include "core/base/err.h"

struct yaml_file {
    char *path;
    yaml_document_t doc;
};

/* One megabyte at most; -ENOENT when there is no such file. */
int yaml_file_open(struct yaml_file *f, const char *path, struct err *err);
void yaml_file_close(struct yaml_file *f);

/* path (taken) as seen from the file's directory; NULL when memory is out. */
char *yaml_file_beside(const struct yaml_file *f, char *path);

yaml_node_t *yaml_top(struct yaml_file *f);
yaml_node_t *yaml_find(struct yaml_file *f, const yaml_node_t *map, const char *key);
size_t yaml_length(const yaml_node_t *list);
yaml_node_t *yaml_item(struct yaml_file *f, const yaml_node_t *list, size_t i);

/* A scalar's text; NULL when it has a NUL in it, or stands for null. */
const char *yaml_text(const yaml_node_t *node);

#endif
