/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_doctor: what hvd-doctor's command line takes from outside: a report for diff ('j'), the
 * options of a captured machine ('o'), text that secrets are taken out of ('r'). The first byte
 * says which.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/cli/cli.h"
#include "diagnostics/cli/compare.h"
#include "diagnostics/report/redact.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "zq7-secret"
#define QUOTED "wx9 \"long\\\xc3\xa4 secret\xc3\xa4"

/* Nothing that a terminal obeys but newlines. */
static bool is_quiet(const unsigned char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((text[i] < ' ' && text[i] != '\n') || text[i] == 0x7f ||
            (text[i] == 0xc2 && i + 1 < len && text[i + 1] >= 0x80 && text[i + 1] < 0xa0))
            return false;
    }
    return true;
}

/* A report that is refused is refused in one line; what is printed of one has no escapes. */
static void as_report(const char *text, size_t len)
{
    json_t *a = NULL;
    struct err err = {0};
    struct buf out = {0};
    if (compare_read(text, len, "a", &a, &err) < 0) {
        if (!err.msg[0] || strchr(err.msg, '\n') ||
            !is_quiet((const unsigned char *)err.msg, strlen(err.msg)))
            abort();
        return;
    }
    json_t *diff = compare_reports(a, a);
    if (diff) {
        compare_text(diff, false, false, &out);
        if (!is_quiet(out.data, out.len))
            abort();
    }
    buf_fini(&out);
    json_decref(diff);
    json_decref(a);
}

static void as_options(const char *text, size_t len)
{
    struct cli_job job = {.gpus = -1};
    char *copy = malloc(len + 1);
    if (!copy)
        abort();
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (cli_parse_job(&job, copy, "options", NULL) == 0 &&
        (job.level < 0 || job.level > 3 || job.gpus < -1 || job.ranks < 0 || job.timeout_ms < 0))
        abort();
    free(copy);
}

/* The secret is in no output. */
static void as_text(const char *text, size_t len)
{
    static const char environment[] = "API_TOKEN=" SECRET;
    struct machine m = {.environ_text = (char *)environment, .environ_len = sizeof(environment)};
    struct redact *r;
    struct buf once = {0};
    if (redact_create(&r, &m) < 0)
        abort();
    redact_text(r, text, len, &once);
    if (once.len && memmem(once.data, once.len, SECRET, strlen(SECRET)))
        abort();
    buf_fini(&once);
    redact_destroy(r);
}

/* What was JSON is JSON afterwards. */
static void as_json(const char *text, size_t len)
{
    static const char environment[] = "API_TOKEN=" SECRET "\0MY_KEY=" QUOTED;
    struct machine m = {.environ_text = (char *)environment, .environ_len = sizeof(environment)};
    struct redact *r;
    struct buf clean = {0};
    struct err err = {0};
    json_t *after = NULL, *before = json_pack("{s:o}", "a", json_lossy_string(text, len));
    char *dump = before ? json_dumps(before, JSON_COMPACT) : NULL;
    if (!dump || redact_create(&r, &m) < 0)
        abort();
    redact_text(r, dump, strlen(dump), &clean);
    if (json_read((const char *)clean.data, clean.len, "clean", &after, &err) < 0)
        abort();
    json_decref(before);
    json_decref(after);
    free(dump);
    buf_fini(&clean);
    redact_destroy(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;
    if (size < 1)
        return 0;
    if (data[0] == 'j')
        as_report(text, size - 1);
    else if (data[0] == 'o')
        as_options(text, size - 1);
    else if (data[0] == 'q' && !memchr(text, '\0', size - 1)) /* our JSON has no NUL */
        as_json(text, size - 1);
    else if (data[0] == 'r')
        as_text(text, size - 1);
    return 0;
}
