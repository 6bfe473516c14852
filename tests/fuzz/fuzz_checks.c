/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_checks: all checks on a machine whose environment and answers are the input: the first byte
 * chooses profiles and level, then come "NAME=value" lines, then for each probe a line "@name" and
 * its answer. There are no files. Each check must return one line, and never the status error.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/doctor.h"
#include "diagnostics/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ANSWERS 64

/* A string from the input, which has no NUL at its end. */
static char *copy(const char *from, size_t n)
{
    char *to = malloc(n + 1);
    if (!to)
        abort();
    memcpy(to, from, n);
    to[n] = '\0';
    return to;
}

/* Reads the environment: its lines become strings. Returns where the first answer begins. */
static const char *take_environment(struct machine *m, const char *text, const char *end)
{
    const char *at = text;
    while (at < end && *at != '@') {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        at = line ? line + 1 : end;
    }
    m->environ_len = (size_t)(at - text);
    m->environ_text = copy(text, m->environ_len);
    for (size_t i = 0; i < m->environ_len; i++) {
        if (m->environ_text[i] == '\n')
            m->environ_text[i] = '\0';
    }
    return at;
}

static void take_answers(struct machine *m, const char *at, const char *end)
{
    while (at < end && m->nanswers < ANSWERS) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        const char *text = line ? line + 1 : end;
        const char *next = text;
        while (next < end && *next != '@') {
            line = memchr(next, '\n', (size_t)(end - next));
            next = line ? line + 1 : end;
        }
        struct machine_answer *a = &m->answers[m->nanswers++];
        a->probe = copy(at + 1, (size_t)(text - at) < 2 ? 0 : (size_t)(text - at) - 2);
        answer_parse(&a->answer, text, (size_t)(next - text));
        at = next;
    }
}

static void judge(const struct report *report)
{
    for (size_t i = 0; i < report->n; i++) {
        const struct result *r = &report->results[i];
        if (r->status == CHECK_ERROR || !r->summary[0] || strchr(r->summary, '\n'))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const struct choice choice = {0};
    struct setting s;
    struct report report;
    struct err err;
    struct machine m = {.root = -1, .answers = calloc(ANSWERS, sizeof(*m.answers))};
    if (!m.answers)
        abort();
    const char *end = (const char *)data + size;
    take_answers(&m, take_environment(&m, (const char *)data + 1, end), end);
    setting_guess(&s, &m);
    s.profiles = data[0] & 15u;
    s.level = 1 + (data[0] >> 4) % 3;
    if (doctor_run(&m, &s, &choice, rules_builtin(), NULL, NULL, &report, &err) < 0)
        abort();
    judge(&report);
    report_fini(&report);
    machine_close(&m);
    return 0;
}
