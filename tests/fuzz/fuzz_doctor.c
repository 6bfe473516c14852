/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_doctor: input of hvd-doctor's command line: a report for diff ('j'), the options of a
 * captured machine ('o'), text from which secrets are removed ('r'), also from JSON ('q') and in
 * other spellings ('w'). The first byte chooses.
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
#define CORE   "7Qz"
#define HARD   "p\"" CORE "\n&<\\\xc3\xa4/"

/* No control character that a terminal obeys, except newlines. */
static bool is_quiet(const unsigned char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((text[i] < ' ' && text[i] != '\n') || text[i] == 0x7f ||
            (text[i] == 0xc2 && i + 1 < len && text[i + 1] >= 0x80 && text[i + 1] < 0xa0))
            return false;
    }
    return true;
}

/* A report is refused in one line. What is printed of a report has no escape sequences. */
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

static struct redact *open_redact(void)
{
    static const char environment[] = "API_TOKEN=" SECRET "\0MY_KEY=" HARD;
    struct machine m = {.environ_text = (char *)environment, .environ_len = sizeof(environment)};
    struct redact *r;
    if (redact_create(&r, &m) < 0)
        abort();
    return r;
}

static bool holds(const struct buf *b, const char *word)
{
    return b->len && memmem(b->data, b->len, word, strlen(word));
}

/* The secret must be in no output. */
static void as_text(const char *text, size_t len)
{
    struct redact *r = open_redact();
    struct buf once = {0};
    redact_text(r, text, len, &once);
    if (once.failed || holds(&once, SECRET))
        abort();
    buf_fini(&once);
    redact_destroy(r);
}

static void put_json(struct buf *out, const char *text, size_t len, int times)
{
    auto_json json_t *j = json_stringn(text, len);
    auto_free char *dump = json_dumps(j, JSON_ENCODE_ANY | (times ? 0 : JSON_ENSURE_ASCII));
    if (!dump)
        abort();
    if (times == 2)
        put_json(out, dump, strlen(dump), 1);
    else
        buf_put(out, dump + 1, strlen(dump) - 2);
}

static void put_percent(struct buf *out, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char code[3] = {'%', digits[c >> 4], digits[c & 15]};
        bool as_is = (c | 32) >= 'a' && (c | 32) <= 'z';
        buf_put(out, as_is ? text : code, as_is ? 1 : sizeof(code));
    }
}

static void put_written(struct buf *out, char how)
{
    static const char xml[] = "p&quot;7Qz\n&amp;&lt;\\\xc3\xa4/";
    switch (how % 6) {
    case 0:
    case 1:
    case 2:
        put_json(out, HARD, strlen(HARD), how % 6);
        break;
    case 3:
        put_percent(out, HARD);
        break;
    case 4:
        buf_put(out, xml, sizeof(xml) - 1);
        break;
    default:
        buf_put(out, HARD, strlen(HARD));
    }
}

/* The secret must be in no output, however it is spelled and whatever surrounds it. */
static void as_written(const char *data, size_t len)
{
    struct buf text = {0}, clean = {0};
    if (len < 1 || memmem(data, len, CORE, strlen(CORE)))
        return;
    struct redact *r = open_redact();
    size_t half = (len - 1) / 2;
    buf_put(&text, data + 1, half);
    put_written(&text, data[0]);
    buf_put(&text, data + 1 + half, len - 1 - half);
    redact_text(r, (char *)text.data, text.len, &clean);
    if (clean.failed || holds(&clean, CORE))
        abort();
    buf_fini(&text);
    buf_fini(&clean);
    redact_destroy(r);
}

/* JSON must still be JSON, without the secret. */
static void as_json(const char *text, size_t len)
{
    struct redact *r = open_redact();
    struct err err = {0};
    struct buf dump = {0};
    auto_json json_t *before = json_pack("{s:[o]}", "a", json_lossy_string(text, len));
    auto_json json_t *clean = redact_json(r, before), *after = NULL;
    auto_free char *written = json_write(clean);
    if (!written || json_read(written, strlen(written), "clean", &after, &err) < 0 ||
        !json_equal(clean, after))
        abort();
    buf_put(&dump, written, strlen(written));
    if (holds(&dump, SECRET))
        abort();
    buf_fini(&dump);
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
    else if (data[0] == 'w')
        as_written(text, size - 1);
    else if (data[0] == 'r')
        as_text(text, size - 1);
    return 0;
}
