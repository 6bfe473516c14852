/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml_file: see yaml_file.h.
 */
#include "agent/yaml_file.h"

#include <errno.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"

#define FILE_MAX (1u << 20)
#define NEST_MAX 500 /* most levels of nested brackets */

/* The line on which brackets are nested too deeply, 0: none. Also counts brackets inside texts; a
 * normal file is far below the limit. */
static size_t nested_line(const char *text, size_t len)
{
    size_t depth = 0, line = 1;
    for (size_t i = 0; i < len; i++) {
        line += text[i] == '\n';
        if (text[i] == '[' || text[i] == '{')
            depth++;
        else if ((text[i] == ']' || text[i] == '}') && depth > 0)
            depth--;
        if (depth > NEST_MAX)
            return line;
    }
    return 0;
}

int yaml_file_read(const char *path, const char *what, yaml_document_t *ret, struct err *err)
{
    yaml_parser_t parser;
    auto_free char *text = NULL;
    size_t len;
    int rc = fd_read_file(path, FILE_MAX, &text, &len);
    if (rc < 0)
        return err_sys(err, -rc, "%s %s", what, path);
    size_t line = nested_line(text, len);
    if (line)
        return err_set(err, EINVAL, "%s:%zu: brackets are nested too deeply", path, line);
    if (!yaml_parser_initialize(&parser))
        return err_set(err, ENOMEM, "no memory");
    yaml_parser_set_input_string(&parser, (unsigned char *)text, len);
    if (!yaml_parser_load(&parser, ret)) {
        /* libyaml does not always report a failed allocation: an error without a problem text
         * was one. */
        if (parser.error == YAML_MEMORY_ERROR || !parser.problem)
            rc = err_set(err, ENOMEM, "%s: no memory", path);
        else
            rc = err_set(err, EINVAL, "%s:%zu: %s", path, parser.problem_mark.line + 1,
                         parser.problem);
    }
    yaml_parser_delete(&parser);
    return rc;
}
