/* SPDX-License-Identifier: Apache-2.0
 *
 * choice: see choice.h.
 */
#include "core/backend/choice.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/backend/doctor.h"
#include "core/base/nearest.h"

const char *const backend_names[BACKENDS] = {"host", "mpi", "nccl", "staged"};

static int unknown(const char *text, const char *word, struct err *err)
{
    char all[BACKEND_NAMES_MAX] = "auto";
    struct nearest near;
    nearest_init(&near, word);
    nearest_try(&near, "auto");
    for (int i = 0; i < BACKENDS; i++) {
        size_t at = strlen(all);
        snprintf(all + at, sizeof(all) - at, ", %s", backend_names[i]);
        nearest_try(&near, backend_names[i]);
    }
    const char *best = nearest_best(&near);
    return err_set(err, EINVAL, "HVD_BACKEND=%s: there is no back end \"%s\"%s%s%s: want one of %s",
                   text, word, best ? " (did you mean " : "", best ? best : "", best ? "?)" : "",
                   all);
}

int backend_find(const char *name)
{
    int i = 0;
    while (i < BACKENDS && strcasecmp(name, backend_names[i]) != 0)
        i++;
    return i;
}

static int add(struct backend_wish *w, const char *text, const char *word, struct err *err)
{
    int at = backend_find(word);
    if (at == BACKENDS)
        return unknown(text, word, err);
    for (int i = 0; i < w->n; i++)
        if (w->list[i] == at)
            return err_set(err, EINVAL, "HVD_BACKEND=%s: %s is named twice", text, word);
    w->list[w->n++] = (uint8_t)at;
    return 0;
}

int backend_wish_parse(const char *text, struct backend_wish *ret, struct err *err)
{
    struct backend_wish w = {0};
    char copy[BACKEND_TEXT_MAX], *save;
    if (!text || strcasecmp(text, "auto") == 0) {
        *ret = w;
        return 0;
    }
    if (strlen(text) >= sizeof(copy))
        return err_set(err, EINVAL,
                       "HVD_BACKEND: %zu characters are too long for a list of back ends",
                       strlen(text));
    memcpy(copy, text, strlen(text) + 1);
    for (char *word = strtok_r(copy, ", ", &save); word; word = strtok_r(NULL, ", ", &save)) {
        int rc = add(&w, text, word, err);
        if (rc < 0)
            return rc;
    }
    if (w.n == 0)
        return unknown(text, "", err);
    *ret = w;
    return 0;
}

void backend_wish_text(const struct backend_wish *w, char *dst, size_t size)
{
    snprintf(dst, size, "%s", w->n == 0 ? "auto" : "");
    for (int i = 0; i < w->n; i++) {
        size_t at = strlen(dst);
        snprintf(dst + at, size - at, "%s%s", i ? "," : "", backend_names[w->list[i]]);
    }
}

/* ---- ranks' reports ------------------------------------------------------------------------- */

void backend_said_put(const struct backend_said *said, struct buf *out)
{
    buf_put_u8(out, (uint8_t)said->wish.n);
    for (int i = 0; i < said->wish.n; i++) {
        buf_put_u8(out, said->wish.list[i]);
        buf_put_u8(out, said->of[i].here);
        buf_put_str(out, said->of[i].text);
    }
}

int backend_said_take(struct buf *buf, struct backend_said *ret, struct err *err)
{
    struct reader r = reader_over(buf->data, buf->len);
    struct backend_said said = {.wish.n = reader_u8(&r)};
    if (r.failed || said.wish.n > BACKENDS)
        return err_set(err, EPROTO, "a card with a malformed list of back ends");
    for (int i = 0; i < said.wish.n; i++) {
        said.wish.list[i] = reader_u8(&r);
        said.of[i].here = reader_u8(&r) == 1;
        reader_str(&r, said.of[i].text, sizeof(said.of[i].text));
        if (said.wish.list[i] >= BACKENDS)
            r.failed = true;
    }
    if (r.failed)
        return err_set(err, EPROTO, "a card with a malformed list of back ends");
    buf_consume(buf, r.pos);
    *ret = said;
    return 0;
}

/* ---- choosing ------------------------------------------------------------------------------- */

static bool same_wish(const struct backend_wish *a, const struct backend_wish *b)
{
    return a->n == b->n && memcmp(a->list, b->list, (size_t)a->n) == 0;
}

static int check_wishes(const struct backend_said *said, int size, struct err *err)
{
    char mine[BACKEND_NAMES_MAX], other[BACKEND_NAMES_MAX];
    for (int r = 1; r < size; r++) {
        if (same_wish(&said[0].wish, &said[r].wish))
            continue;
        backend_wish_text(&said[0].wish, mine, sizeof(mine));
        backend_wish_text(&said[r].wish, other, sizeof(other));
        return err_set(err, EINVAL,
                       "HVD_BACKEND is %s on rank 0 and %s on rank %d: it must be the same on "
                       "every rank",
                       mine, other, r);
    }
    return 0;
}

/* Checks that every rank has the i-th back end of the list, and the same one. */
static int check_one(const struct backend_said *said, int size, int i, const char *name,
                     struct err *err)
{
    for (int r = 0; r < size; r++) {
        if (!said[r].of[i].here)
            return err_set(err, ENOENT, "HVD_BACKEND=%s: rank %d cannot use it: %s", name, r,
                           said[r].of[i].text);
        if (strcmp(said[0].of[i].text, said[r].of[i].text) != 0)
            return err_set(err, ENOENT,
                           "HVD_BACKEND=%s: rank 0 has %s, rank %d has %s: install the same "
                           "everywhere " DOCTOR(CHECK_VERSION_SKEW),
                           name, said[0].of[i].text, r, said[r].of[i].text);
    }
    return 0;
}

int backend_choose(const struct backend_said *said, int size, struct backend_choice *ret,
                   struct err *err)
{
    struct backend_choice c = {0};
    const struct backend_wish *wish = &said[0].wish;
    int rc = check_wishes(said, size, err);
    for (int i = 0; i < wish->n && rc == 0; i++) {
        struct err why = {0};
        if (wish->list[i] == BACKEND_HOST)
            continue;
        rc = check_one(said, size, i, backend_names[wish->list[i]], &why);
        if (rc == 0) {
            c.use.list[c.use.n++] = wish->list[i];
        } else if (i + 1 < wish->n) {
            snprintf(c.note, sizeof(c.note), "%.*s; %s instead", (int)sizeof(c.note) - 40, why.msg,
                     backend_names[wish->list[i + 1]]);
            rc = 0;
        } else if (err) {
            *err = why;
        }
    }
    if (rc == 0)
        *ret = c;
    return rc;
}
