/* SPDX-License-Identifier: Apache-2.0
 *
 * match_line: see match_line.h.
 */
#include "diagnostics/match_line.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"

#define ESC          0x1b
#define PREFIXES     8
#define LEVEL_WINDOW 200
#define RANK_DIGITS  6
#define SHOWN_HEAD   96

/* ---- bytes ---------------------------------------------------------------------------------- */

/* The length of the terminal escape sequence at p; an unfinished one extends to the end of the
 * line. */
static size_t sequence_len(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *q = p + 1;
    if (q == end)
        return 1;
    if (*q == '[') { /* CSI: parameters, then a final byte */
        for (q++; q < end && (*q < 0x40 || *q > 0x7e); q++)
            if (*q < 0x20)
                return (size_t)(q - p);
        return (size_t)(q - p) + (q < end);
    }
    if (*q == ']') { /* OSC: until BEL or ESC \ */
        for (q++; q < end && *q != 7 && *q != ESC; q++)
            ;
        if (q < end && *q == ESC)
            q++;
        return (size_t)(q - p) + (q < end);
    }
    return 2;
}

static const uint8_t *skip_sequences(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p == ESC)
        p += sequence_len(p, end);
    return p;
}

size_t match_line_clean(const uint8_t *raw, size_t len, char *dst, size_t size)
{
    const uint8_t *p = raw, *end = raw + len;
    size_t n = 0;
    while ((p = skip_sequences(p, end)) < end && n + 1 < size) {
        dst[n++] = (char)(*p < 0x20 || *p == 0x7f ? ' ' : *p);
        p++;
    }
    dst[n] = 0;
    return n;
}

/* The length in bytes of the UTF-8 character at p; 0: it is not UTF-8. */
static size_t utf8_len(const uint8_t *p, const uint8_t *end)
{
    size_t n = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
    if (n == 1)
        return 1;
    if (*p < 0xc2 || *p > 0xf4 || (size_t)(end - p) < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if (!utf8_inside(p[i]))
            return 0;
    if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
        (*p == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

/* Writes raw to dst in printable form; stops when the next character does not fit. */
static size_t show(const uint8_t *p, const uint8_t *end, char *dst, size_t size)
{
    size_t n = 0;
    while ((p = skip_sequences(p, end)) < end) {
        char piece[8];
        size_t take = utf8_len(p, end), k;
        if (take == 0) {
            k = (size_t)snprintf(piece, sizeof(piece), "\xef\xbf\xbd");
            take = 1;
        } else if (*p == '\t') {
            k = (size_t)snprintf(piece, sizeof(piece), " ");
        } else if (*p < 0x20 || *p == 0x7f) {
            k = (size_t)snprintf(piece, sizeof(piece), "\\x%02x", *p);
        } else {
            memcpy(piece, p, take);
            k = take;
        }
        if (n + k + 1 > size)
            break;
        memcpy(dst + n, piece, k);
        n += k;
        p += take;
    }
    dst[n] = 0;
    return n;
}

/* The position in raw that corresponds to position at of the cleaned line. */
static const uint8_t *raw_at(const uint8_t *raw, const uint8_t *end, size_t at)
{
    const uint8_t *p = skip_sequences(raw, end);
    for (; at > 0 && p < end; at--)
        p = skip_sequences(p + 1, end);
    return p;
}

void match_line_show(const uint8_t *raw, size_t len, size_t at, char *dst, size_t size)
{
    const uint8_t *end = raw + len, *from = raw_at(raw, end, at);
    if (len < size || (size_t)(from - raw) < size / 2) {
        show(raw, end, dst, size);
        return;
    }
    size_t head = size / 4 < SHOWN_HEAD ? size / 4 : SHOWN_HEAD;
    size_t n = show(raw, raw + head, dst, head);
    n += (size_t)snprintf(dst + n, size - n, " ... ");
    from -= size / 4;
    while (from < end && utf8_inside(*from))
        from++;
    show(from, end, dst + n, size - n);
}

/* ---- prefixes ------------------------------------------------------------------------------- */

static const char *number(const char *p, int *ret)
{
    int n = 0, v = 0;
    for (; isdigit((unsigned char)*p) && n < RANK_DIGITS; p++, n++)
        v = v * 10 + (*p - '0');
    if (n == 0 || isdigit((unsigned char)*p))
        return NULL;
    *ret = v;
    return p;
}

/* "[3]<stderr>:" of hvdrun and horovodrun, "[1,3]<stdout>:" and "[job@1,3]<stderr>:" of mpirun */
static size_t read_tag(const char *text, struct match_meta *m)
{
    int rank;
    if (*text != '[')
        return 0;
    size_t n = strcspn(text, "]\n");
    if (text[n] != ']' || n > 128)
        return 0;
    const char *p = text + 1;
    for (const char *q = text; q < text + n; q++)
        if (*q == ',')
            p = q + 1;
    p = number(p, &rank);
    if (p != text + n)
        return 0;
    p++;
    if (strncmp(p, "<stdout>", 8) != 0 && strncmp(p, "<stderr>", 8) != 0)
        return 0;
    m->rank = rank;
    p += 8;
    return (size_t)(p - text) + (*p == ':');
}

/* "[rank3]:" of PyTorch, "[default3]:" of torchrun (a local rank: not taken) */
static size_t read_rank(const char *text, struct match_meta *m)
{
    int rank;
    bool local = strncmp(text, "[default", 8) == 0;
    if (!local && strncmp(text, "[rank", 5) != 0)
        return 0;
    const char *p = number(text + (local ? 8 : 5), &rank);
    if (!p || p[0] != ']' || p[1] != ':')
        return 0;
    if (!local)
        m->rank = rank;
    return (size_t)(p - text) + 2;
}

/* " 3: " of srun --label */
static size_t read_label(const char *text, struct match_meta *m)
{
    int rank;
    const char *p = text;
    while (*p == ' ')
        p++;
    p = number(p, &rank);
    if (!p || p[0] != ':' || p[1] != ' ')
        return 0;
    m->rank = rank;
    return (size_t)(p - text) + 2;
}

/* "stderr F " of a Kubernetes node's files, "host kernel: " of syslog */
static size_t read_origin(const char *text)
{
    if (strncmp(text, "stdout F ", 9) == 0 || strncmp(text, "stderr F ", 9) == 0 ||
        strncmp(text, "stdout P ", 9) == 0 || strncmp(text, "stderr P ", 9) == 0)
        return 9;
    size_t host = strcspn(text, " ");
    if (host && host < 128 && strncmp(text + host, " kernel: ", 9) == 0)
        return host + 9;
    return 0;
}

/* "[pod/worker-3/trainer] " of kubectl logs --prefix, "(Worker pid=4711, ip=10.0.0.3) " of Ray,
 * "worker-3  | " of compose */
static size_t read_container(const char *text)
{
    size_t n = 0;
    if (strncmp(text, "[pod/", 5) == 0) {
        n = strcspn(text, "] ");
        return text[n] == ']' && text[n + 1] == ' ' ? n + 2 : 0;
    }
    if (*text == '(') {
        n = strcspn(text, ")");
        const char *pid = strstr(text, "pid=");
        return pid && pid < text + n && text[n] && text[n + 1] == ' ' ? n + 2 : 0;
    }
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("-_.", text[n])))
        n++;
    size_t blanks = strspn(text + n, " ");
    return n && blanks && text[n + blanks] == '|' && text[n + blanks + 1] == ' ' ? n + blanks + 2
                                                                                 : 0;
}

/* {"log":"...","time":"2024-..."} */
static void read_json(const char *text, struct match_meta *m)
{
    static const char *const keys[] = {"\"time\":\"", "\"timestamp\":\"", "\"ts\":\""};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *p = strstr(text, keys[i]);
        if (p && match_time_read(p + strlen(keys[i]), &m->time))
            return;
    }
}

/* ---- level ---------------------------------------------------------------------------------- */

/* "hvd: info: ", "hvd-agent: debug: " */
static bool is_our_info(const char *text)
{
    static const char *const words[] = {": info: ", ": debug: ", ": trace: "};
    size_t n = strncmp(text, "hvd", 3) == 0 ? strcspn(text, ":") : 0;
    for (size_t i = 0; n && i < sizeof(words) / sizeof(words[0]); i++)
        if (strncmp(text + n, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

/* The first level name near the beginning of the line decides. */
static bool is_info(const char *text)
{
    static const struct {
        const char *word;
        bool info;
    } words[] = {
        {"INFO", true},     {"DEBUG", true},      {"TRACE", true},       {"WARN", false},
        {"WARNING", false}, {"ERROR", false},     {"FATAL", false},      {"CRITICAL", false},
        {"Error", false},   {"level=info", true}, {"level=debug", true},
    };
    if (strchr("ID", text[0]) && text[0] && isdigit((unsigned char)text[1]) &&
        isdigit((unsigned char)text[2]) && isdigit((unsigned char)text[3]))
        return true;
    if (is_our_info(text) || strncmp(text, "I tensorflow/", 13) == 0 ||
        strncmp(text, "I external/", 11) == 0)
        return true;
    for (const char *p = text; *p && p < text + LEVEL_WINDOW;) {
        size_t n = strcspn(p, " \t[](){}:|,\"'<>");
        for (size_t i = 0; n && i < sizeof(words) / sizeof(words[0]); i++)
            if (strlen(words[i].word) == n && strncmp(p, words[i].word, n) == 0)
                return words[i].info;
        p += n;
        p += *p != 0;
    }
    return false;
}

static size_t skip_blanks(const char *text)
{
    return strspn(text, " ");
}

void match_line_meta(const char *clean, struct match_meta *ret)
{
    struct match_meta m = {.rank = -1};
    const char *p = clean, *level = NULL;
    for (int i = 0; i < PREFIXES; i++) {
        struct match_time time;
        size_t blanks = p == clean ? 0 : skip_blanks(p), n = match_time_read(p + blanks, &time);
        if (n) {
            if (!level && strchr("IWEFD", p[blanks + (p[blanks] == '[')]))
                level = p + blanks + (p[blanks] == '[');
            if (time.kind == MATCH_TIME_DATE || m.time.kind != MATCH_TIME_DATE)
                m.time = time;
        }
        if (!n && m.rank < 0 && (n = read_label(p, &m)))
            blanks = 0;
        if (!n)
            n = read_tag(p + blanks, &m);
        if (!n)
            n = read_rank(p + blanks, &m);
        if (!n && p != clean)
            n = read_origin(p + blanks);
        if (!n && p == clean)
            n = read_container(p);
        if (!n)
            break;
        p += blanks + n;
        if (*p == ':' && p[1] == ' ')
            p++;
    }
    p += p == clean ? 0 : skip_blanks(p);
    if (m.time.kind == MATCH_TIME_NONE && *p == '{')
        read_json(p, &m);
    m.text = (size_t)(p - clean);
    m.info = is_info(level ? level : p) || (level && is_info(p));
    *ret = m;
}

int match_line_rank_of_name(const char *name)
{
    int rank;
    for (const char *p = name; (p = strstr(p, "rank")); p += 4) {
        const char *q = p + 4;
        if (*q == '.' || *q == '_' || *q == '-')
            q++;
        if (number(q, &rank))
            return rank;
    }
    return -1;
}
