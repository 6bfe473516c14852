/* SPDX-License-Identifier: Apache-2.0
 *
 * rules: see rules.h. The object contains the bytes of rules.conf (.incbin, which gcc and clang
 * support; the path is relative to the project's root, where make runs).
 */
#include "diagnostics/rules.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"

#define FILE_MAX (1u << 20)
#define FIELDS   7
#define WORD_MAX 64

struct rules {
    char *text;
    struct rule *rules;
    size_t n;
};

__asm__(".pushsection .rodata\n"
        ".global hvd_rules_conf_start\n"
        ".hidden hvd_rules_conf_start\n"
        "hvd_rules_conf_start:\n"
        ".incbin \"diagnostics/rules.conf\"\n"
        ".global hvd_rules_conf_end\n"
        ".hidden hvd_rules_conf_end\n"
        "hvd_rules_conf_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern const char hvd_rules_conf_start[] __attribute__((visibility("hidden")));
extern const char hvd_rules_conf_end[] __attribute__((visibility("hidden")));

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return s;
}

/* Copies the next word of s to dst; false at the end. A word that is too long is cut and is then
 * no valid range or condition. */
static bool next_word(const char **s, char dst[WORD_MAX])
{
    while (**s == ' ' || **s == '\t')
        (*s)++;
    size_t n = strcspn(*s, " \t");
    snprintf(dst, WORD_MAX, "%.*s", (int)(n < WORD_MAX ? n : WORD_MAX - 1), *s);
    *s += n;
    return n > 0;
}

/* ---- ranges ---- */

enum op { OP_LT, OP_LE, OP_GT, OP_GE, OP_EQ, OP_BAD };

static enum op op_of(const char *word, const char **ret_version)
{
    size_t n = strspn(word, "<>=");
    enum op op = OP_BAD;
    if (n == 1)
        op = *word == '<' ? OP_LT : *word == '>' ? OP_GT : OP_EQ;
    else if (n == 2 && word[1] == '=')
        op = *word == '<' ? OP_LE : *word == '>' ? OP_GE : OP_BAD;
    *ret_version = word + n;
    return isdigit((unsigned char)word[n]) ? op : OP_BAD;
}

static bool op_holds(enum op op, int order)
{
    switch (op) {
    case OP_LT:
        return order < 0;
    case OP_LE:
        return order <= 0;
    case OP_GT:
        return order > 0;
    case OP_GE:
        return order >= 0;
    case OP_EQ:
        return order == 0;
    default:
        return false;
    }
}

/* Returns whether version is in the range. valid (may be NULL): whether the range can be parsed. */
static bool range_holds(const char *range, const char *version, bool *valid)
{
    char word[WORD_MAX];
    const char *wanted;
    bool any = false, all = true, empty = true;
    if (valid)
        *valid = true;
    while (next_word(&range, word)) {
        if (strcmp(word, "or") == 0) {
            if (empty && valid)
                *valid = false;
            any |= all && !empty;
            all = empty = true;
            continue;
        }
        enum op op = op_of(word, &wanted);
        if (op == OP_BAD && strcmp(word, "*") != 0 && valid)
            *valid = false;
        if (op == OP_BAD ? strcmp(word, "*") != 0 : !op_holds(op, version_compare(version, wanted)))
            all = false;
        empty = false;
    }
    if (empty && valid)
        *valid = false;
    return any || (all && !empty);
}

/* ---- conditions ---- */

static bool conditions_hold(const char *conditions, const struct rule_facts *facts)
{
    char word[WORD_MAX];
    if (strcmp(conditions, "-") == 0)
        return true;
    while (next_word(&conditions, word)) {
        if (strcmp(word, "and") == 0)
            continue;
        if (!facts || !facts->holds || !facts->holds(facts->arg, word))
            return false;
    }
    return true;
}

/* Returns whether the text is facts joined by "and". */
static bool conditions_valid(const char *conditions)
{
    char word[WORD_MAX];
    bool fact = false;
    if (strcmp(conditions, "-") == 0)
        return true;
    while (next_word(&conditions, word)) {
        if ((strcmp(word, "and") == 0) != fact)
            return false;
        fact = !fact;
    }
    return fact;
}

/* ---- reading ---- */

static int severity_of(const char *word)
{
    return strcmp(word, "info") == 0   ? CHECK_INFO
           : strcmp(word, "warn") == 0 ? CHECK_WARN
           : strcmp(word, "fail") == 0 ? CHECK_FAIL
                                       : -1;
}

static int parse_rule(struct rule *r, char *line, const char *name, int number, struct err *err)
{
    char *fields[FIELDS];
    size_t n = 0;
    bool valid;
    for (char *s = line; s && n < FIELDS; n++) {
        char *bar = strchr(s, '|');
        if (bar)
            *bar++ = '\0';
        fields[n] = trim(s);
        if (!*fields[n])
            return err_set(err, EINVAL, "%s:%d: field %zu is empty", name, number, n + 1);
        s = bar;
        if (n == FIELDS - 1 && s)
            return err_set(err, EINVAL, "%s:%d: more than %d fields", name, number, FIELDS);
    }
    if (n < FIELDS)
        return err_set(err, EINVAL,
                       "%s:%d: %zu fields, want %d: component | range | conditions | "
                       "severity | text | fix | reference",
                       name, number, n, FIELDS);
    range_holds(fields[1], "0", &valid);
    if (!valid)
        return err_set(err, EINVAL, "%s:%d: range: \"%s\"", name, number, fields[1]);
    if (!conditions_valid(fields[2]))
        return err_set(err, EINVAL, "%s:%d: conditions: \"%s\"", name, number, fields[2]);
    int severity = severity_of(fields[3]);
    if (severity < 0)
        return err_set(err, EINVAL, "%s:%d: severity: \"%s\", want info, warn or fail", name,
                       number, fields[3]);
    *r = (struct rule){fields[0],
                       fields[1],
                       fields[2],
                       fields[4],
                       fields[5],
                       fields[6],
                       (enum check_status)severity,
                       number};
    return 0;
}

int rules_parse(const char *text, size_t len, const char *name, struct rules **ret, struct err *err)
{
    struct rules *rules = calloc(1, sizeof(*rules));
    int rc = 0, number = 0;
    size_t lines = 1;
    if (!rules)
        return err_set(err, ENOMEM, "%s: no memory", name);
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    rules->text = calloc(len + 1, 1);
    rules->rules = calloc(lines, sizeof(*rules->rules));
    if (!rules->text || !rules->rules) {
        rules_destroy(rules);
        return err_set(err, ENOMEM, "%s: no memory", name);
    }
    if (len)
        memcpy(rules->text, text, len);
    if (strlen(rules->text) != len)
        rc = err_set(err, EINVAL, "%s: not a text file", name);
    for (char *line = rules->text; line && rc == 0;) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        number++;
        line = trim(line);
        if (*line && *line != '#') {
            rc = parse_rule(&rules->rules[rules->n], line, name, number, err);
            rules->n += rc == 0;
        }
        line = end;
    }
    if (rc < 0) {
        rules_destroy(rules);
        return rc;
    }
    *ret = rules;
    return 0;
}

int rules_read(const char *path, struct rules **ret, struct err *err)
{
    auto_free char *text = NULL;
    size_t len = 0;
    int rc = fd_read_file(path, FILE_MAX, &text, &len);
    if (rc < 0)
        return err_sys(err, -rc, "%s", path);
    return rules_parse(text, len, path, ret, err);
}

void rules_destroy(struct rules *rules)
{
    if (!rules)
        return;
    free(rules->text);
    free(rules->rules);
    free(rules);
}

/* ---- the compiled-in file ---- */

static struct rules *builtin;

static void builtin_read(void)
{
    static struct rules none;
    struct err err;
    if (rules_parse(hvd_rules_conf_start, (size_t)(hvd_rules_conf_end - hvd_rules_conf_start),
                    "rules.conf", &builtin, &err) < 0)
        builtin = &none;
}

const struct rules *rules_builtin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, builtin_read);
    return builtin;
}

/* ---- asking ---- */

size_t rules_count(const struct rules *rules)
{
    return rules ? rules->n : 0;
}

const struct rule *rules_at(const struct rules *rules, size_t i)
{
    return i < rules_count(rules) ? &rules->rules[i] : NULL;
}

size_t rules_hits(const struct rules *rules, const char *component, const char *version,
                  const struct rule_facts *facts, const struct rule **ret, size_t max)
{
    size_t n = 0;
    if (!version || !isdigit((unsigned char)version[*version == 'v']))
        return 0;
    for (int severity = CHECK_FAIL; severity >= CHECK_INFO; severity--) {
        for (size_t i = 0; i < rules_count(rules) && n < max; i++) {
            const struct rule *r = &rules->rules[i];
            if ((int)r->severity == severity && strcmp(r->component, component) == 0 &&
                range_holds(r->range, version, NULL) && conditions_hold(r->conditions, facts))
                ret[n++] = r;
        }
    }
    return n;
}
