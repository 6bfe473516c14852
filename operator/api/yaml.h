/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml: loads an untrusted YAML file as a libyaml document, and looks up nodes. A node that is
 * missing or has another type is NULL, and all lookups accept NULL. Called by kubeconfig.c.
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

/* Loads the file at path, at most one megabyte. -ENOENT: no such file. */
int yaml_file_open(struct yaml_file *f, const char *path, struct err *err);
void yaml_file_close(struct yaml_file *f);

/* path relative to the file's directory; takes path. NULL: no memory. */
char *yaml_file_beside(const struct yaml_file *f, char *path);

yaml_node_t *yaml_top(struct yaml_file *f);
yaml_node_t *yaml_find(struct yaml_file *f, const yaml_node_t *map, const char *key);
size_t yaml_length(const yaml_node_t *list);
yaml_node_t *yaml_item(struct yaml_file *f, const yaml_node_t *list, size_t i);

/* A scalar's text; NULL: it contains a NUL, or is null. */
const char *yaml_text(const yaml_node_t *node);

#endif
