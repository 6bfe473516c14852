/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml_file: a YAML file of a user, read by libyaml into a document. Any thread.
 */
#ifndef HVD_AGENT_YAML_FILE_H
#define HVD_AGENT_YAML_FILE_H

#include <yaml.h>

#include "core/base/err.h"

/* Reads the first document of a file of at most 1 MiB; brackets may be nested 500 levels deep.
 * what: what the file is, for messages. Pass *ret to yaml_document_delete(). -EINVAL: it is not
 * YAML, err has the line; -ENOMEM; errors of files. */
int yaml_file_read(const char *path, const char *what, yaml_document_t *ret, struct err *err);

#endif
