/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns: see patterns.h. The text is copied once and split in place: all strings point into the
 * copy.
 */
#include "diagnostics/patterns.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/match_scan.h"
#include "diagnostics/patterns_data.h"

#define LITERAL_MIN 4

static const char *const kind_names[] = {"cause", "effect", "info", "failure", "ignore"};
#define KINDS (sizeof(kind_names) / sizeof(kind_names[0]))

struct reading {
    struct patterns *set;
    size_t cap;
    struct pattern *at; /* NULL: before the first block */
    const char *name;
    int line;
    struct err *err;
};

const char *pattern_kind_name(enum pattern_kind kind)
{
    return kind_names[kind];
}

bool pattern_listed(const char *list, const char *id)
{
    size_t n = strlen(id);
    for (const char *p = list; p && (p = strstr(p, id)); p += n)
        if ((p == list || strchr(" ,", p[-1])) && strchr(" ,", p[n]))
            return true;
    return false;
}

const struct pattern *patterns_find(const struct patterns *p, const char *id)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->v[i].id, id) == 0 || strcmp(p->v[i].code, id) == 0)
            return &p->v[i];
    return NULL;
}

/* ---- expressions ---------------------------------------------------------------------------- */

static bool compile(struct pattern_regex *r)
{
    if (r->compiled)
        return true;
    regex_t *re = malloc(sizeof(*re));
    if (!re || regcomp(re, r->text, REG_EXTENDED) != 0) {
        free(re);
        return false;
    }
    r->compiled = re;
    return true;
}

static bool matches(struct pattern_regex *r, const char *text)
{
    return compile(r) && regexec(r->compiled, text, 0, NULL, 0) == 0;
}

bool pattern_matches(struct pattern *p, const char *text, int *ret_regex)
{
    for (int i = 0; i < p->nregex; i++) {
        if (!matches(&p->regex[i], text))
            continue;
        if (p->except.text && matches(&p->except, text))
            return false;
        if (ret_regex)
            *ret_regex = i;
        return true;
    }
    return false;
}

static void drop(struct pattern_regex *r)
{
    if (r->compiled)
        regfree(r->compiled);
    free(r->compiled);
    r->compiled = NULL;
}

void patterns_destroy(struct patterns *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        for (int k = 0; k < p->v[i].nregex; k++)
            drop(&p->v[i].regex[k]);
        drop(&p->v[i].except);
    }
    scan_destroy(p->scan);
    free(p->v);
    free(p->text);
    free(p);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int refuse(const struct reading *r, const char *what, const char *detail)
{
    return err_set(r->err, EINVAL, "%s:%d: %s%s%s", r->name, r->line, what, *detail ? ": " : "",
                   detail);
}

static struct pattern *next_pattern(struct reading *r)
{
    struct patterns *set = r->set;
    if (set->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        struct pattern *v = realloc(set->v, cap * sizeof(*v));
        if (!v)
            return NULL;
        set->v = v;
        r->cap = cap;
    }
    struct pattern *p = &set->v[set->n++];
    *p = (struct pattern){.strength = 2};
    return p;
}

static int condition(struct reading *r, const char *word)
{
    static const char *const words[] = {"failed", "info", "follow", "exception", "absent"};
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(word, words[i]) == 0) {
            r->at->conditions |= 1u << i;
            return 0;
        }
    }
    return refuse(r, "no condition", word);
}

/* [id] code kind strength conditions */
static int head(struct reading *r, char *line)
{
    char *save = NULL, *id = line + 1, *close = strchr(line, ']');
    if (!close || close == id)
        return refuse(r, "expected [id]", line);
    *close = 0;
    const char *code = strtok_r(close + 1, " ", &save), *kind = strtok_r(NULL, " ", &save),
               *strength = strtok_r(NULL, " ", &save);
    if (!code || !kind || !strength)
        return refuse(r, "expected [id] code kind strength", id);
    if (patterns_find(r->set, id) || patterns_find(r->set, code))
        return refuse(r, "id or code is used twice", id);
    struct pattern *p = r->at = next_pattern(r);
    if (!p)
        return err_set(r->err, ENOMEM, "no memory for %zu patterns", r->set->n);
    p->id = id;
    p->code = code;
    size_t k = 0;
    while (k < KINDS && strcmp(kind, kind_names[k]) != 0)
        k++;
    if (k == KINDS)
        return refuse(r, "no kind", kind);
    p->kind = (enum pattern_kind)k;
    if (strength[0] < '1' || strength[0] > '3' || strength[1])
        return refuse(r, "strength is 1, 2 or 3, not", strength);
    p->strength = strength[0] - '0';
    for (const char *w = strtok_r(NULL, " ", &save); w; w = strtok_r(NULL, " ", &save))
        if (condition(r, w) < 0)
            return -EINVAL;
    return 0;
}

static int add_regex(struct reading *r, const char *text)
{
    if (r->at->nregex == PATTERN_REGEX)
        return refuse(r, "too many re", r->at->id);
    struct pattern_regex *re = &r->at->regex[r->at->nregex++];
    re->text = text;
    if (patterns_literal(text, re->literal, sizeof(re->literal)) < LITERAL_MIN)
        return refuse(r, "no literal of 4 bytes in", text);
    return 0;
}

static int add(struct reading *r, const char **list, int *n, int max, const char *text)
{
    if (*n == max)
        return refuse(r, "too many lines of this kind", text);
    list[(*n)++] = text;
    return 0;
}

static int set(struct reading *r, const char **field, const char *text)
{
    if (*field)
        return refuse(r, "given twice", text);
    *field = text;
    return 0;
}

static int set_action(struct reading *r, const char *text)
{
    for (int a = 0; a < ACTIONS; a++) {
        if (strcmp(text, check_action_name((enum check_action)a)) == 0) {
            r->at->action = (enum check_action)a;
            return 0;
        }
    }
    return refuse(r, "no action", text);
}

static int set_everywhere(struct pattern *p, const char *text)
{
    for (int i = 0; i < FIX_PLACES; i++)
        if (!p->fix[i])
            p->fix[i] = text;
    return 0;
}

static int field(struct reading *r, const char *key, const char *text)
{
    struct pattern *p = r->at;
    if (strcmp(key, "re") == 0)
        return add_regex(r, text);
    if (strcmp(key, "eg") == 0)
        return add(r, p->examples, &p->nexamples, PATTERN_EXAMPLES, text);
    if (strcmp(key, "no") == 0)
        return add(r, p->negatives, &p->nnegatives, PATTERN_EXAMPLES, text);
    if (strcmp(key, "except") == 0)
        return set(r, &p->except.text, text);
    if (strcmp(key, "of") == 0)
        return set(r, &p->of, text);
    if (strcmp(key, "say") == 0)
        return set(r, &p->say, text);
    if (strcmp(key, "why") == 0)
        return set(r, &p->why, text);
    if (strcmp(key, "docker") == 0)
        return set(r, &p->fix[FIX_DOCKER], text);
    if (strcmp(key, "k8s") == 0)
        return set(r, &p->fix[FIX_K8S], text);
    if (strcmp(key, "host") == 0)
        return set(r, &p->fix[FIX_HOST], text);
    if (strcmp(key, "do") == 0)
        return set_everywhere(p, text);
    if (strcmp(key, "act") == 0)
        return set_action(r, text);
    if (strcmp(key, "ref") == 0) {
        int n = 0;
        while (n < PATTERN_REFS && p->refs[n])
            n++;
        return add(r, p->refs, &n, PATTERN_REFS, text);
    }
    return refuse(r, "no field", key);
}

/* Parses a line "key: value", "[head]", "# remark" or an empty one; splits it in place. */
static int read_line(struct reading *r, char *line)
{
    while (*line == ' ' || *line == '\t')
        line++;
    size_t n = strlen(line);
    while (n > 0 && strchr(" \t\r", line[n - 1]))
        line[--n] = 0;
    if (*line == 0 || *line == '#')
        return 0;
    if (*line == '[')
        return head(r, line);
    char *colon = strchr(line, ':');
    if (!colon || !r->at)
        return refuse(r, "expected [id] or field: value", line);
    *colon++ = 0;
    while (*colon == ' ' || *colon == '\t')
        colon++;
    if (!*colon)
        return refuse(r, "nothing after", line);
    return field(r, line, colon);
}

static int read_text(struct reading *r, char *text)
{
    r->line = 0;
    r->at = NULL;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        r->line++;
        int rc = read_line(r, line);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int make_scan(struct patterns *p, struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += (size_t)p->v[i].nregex;
    auto_free struct scan_word *words = calloc(n + 1, sizeof(*words));
    if (!words)
        return err_set(err, ENOMEM, "no memory for %zu expressions", n);
    n = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (p->v[i].nregex == 0 || !p->v[i].say)
            return err_set(err, EINVAL, "%s: no \"re\" or no \"say\"", p->v[i].id);
        for (int k = 0; k < p->v[i].nregex; k++)
            words[n++] = (struct scan_word){p->v[i].regex[k].literal, (unsigned)i};
    }
    /* A line may have a colour sequence inside a word: lines with an escape byte are examined
     * without their colours. */
    words[n++] = (struct scan_word){"\x1b", (unsigned)p->n};
    return scan_create(words, n, &p->scan, err);
}

/* Parses the texts of the files in order. Each is NUL-terminated in the copy. */
static int parse(const struct patterns_file *files, size_t n, struct patterns **ret,
                 struct err *err)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += (size_t)(files[i].end - files[i].begin) + 1;
    struct patterns *p = calloc(1, sizeof(*p));
    if (!p || !(p->text = calloc(1, total + 1))) {
        free(p);
        return err_set(err, ENOMEM, "no memory for %zu bytes of log patterns", total);
    }
    struct reading r = {.set = p, .err = err};
    char *at = p->text;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t len = (size_t)(files[i].end - files[i].begin);
        memcpy(at, files[i].begin, len);
        r.name = files[i].name;
        rc = read_text(&r, at);
        at += len + 1;
    }
    if (rc == 0)
        rc = make_scan(p, err);
    if (rc < 0)
        patterns_destroy(p);
    else
        *ret = p;
    return rc;
}

int patterns_create(struct patterns **ret, struct err *err)
{
    return parse(patterns_files, patterns_nfiles, ret, err);
}

int patterns_parse(const char *text, size_t len, const char *name, struct patterns **ret,
                   struct err *err)
{
    struct patterns_file file = {name, text, text + len};
    return parse(&file, 1, ret, err);
}
