/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_status: a coordinator's answer to hvdrun status, read and printed; and the same bytes as the
 * file of a job. The output must have no control characters of the terminal.
 */
#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/jobs.h"
#include "agent/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print(const struct status *s, bool all)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f || status_print(s, "job", 5, 100000, all, f) < 0)
        abort();
    fclose(f);
    for (size_t i = 0; i < len; i++)
        if (iscntrl((unsigned char)text[i]) && text[i] != '\n')
            abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_json json_t *j = NULL;
    struct status s;
    struct job_entry entry = {0};
    struct err err = {0};
    if (jobs_entry_read((const char *)data, size, &entry, &err) == 0 ? !entry.name[0] : !err.msg[0])
        abort();
    if (json_read((const char *)data, size, "a status", &j, NULL) < 0)
        return 0;
    err = (struct err){0};
    if (status_read(j, &s, &err) < 0) {
        if (!err.msg[0])
            abort();
        return 0;
    }
    print(&s, false);
    print(&s, true);
    status_fini(&s);
    return 0;
}
