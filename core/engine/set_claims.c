/* SPDX-License-Identifier: Apache-2.0
 *
 * set_claims: see set_claims.h. The bytes are {u32 serial, u8 n, n times u32 set that is made, u8
 * m, m times u32 set that is removed}.
 */
#include "core/engine/set_claims.h"

#include "core/engine/engine.h"

int set_claims_begin(struct engine *e, struct set *set, struct err *err)
{
    struct set_claims *s = &e->sets.claims;
    if (s->nforming == SET_CLAIMS_MAX)
        return err_set(err, EBUSY, "%d threads are in hvd_set_form()", SET_CLAIMS_MAX);
    s->forming[s->nforming++] = set;
    return 0;
}

void set_claims_end(struct engine *e, struct set *set)
{
    struct set_claims *s = &e->sets.claims;
    for (size_t i = 0; i < s->nforming; i++)
        if (s->forming[i] == set)
            s->forming[i--] = s->forming[--s->nforming];
}

void set_claims_removed(struct engine *e, int set)
{
    struct set_claims *s = &e->sets.claims;
    s->removed[s->nremoved++ % SET_CLAIMS_MAX] = set;
}

void set_claims_put(const struct engine *e, struct buf *out)
{
    const struct set_claims *s = &e->sets.claims;
    size_t nremoved = s->nremoved < SET_CLAIMS_MAX ? s->nremoved : SET_CLAIMS_MAX, made = 0;
    for (size_t i = 0; i < s->nforming; i++)
        made += s->forming[i]->made;
    buf_put_u32(out, s->serial);
    buf_put_u8(out, (uint8_t)made);
    for (size_t i = 0; i < s->nforming; i++)
        if (s->forming[i]->made)
            buf_put_u32(out, (uint32_t)s->forming[i]->number);
    buf_put_u8(out, (uint8_t)nremoved);
    for (size_t i = 0; i < nremoved; i++)
        buf_put_u32(out, (uint32_t)s->removed[i]);
}

static void is_made(struct engine *e, uint32_t number)
{
    struct set_claims *s = &e->sets.claims;
    for (size_t i = 0; i < s->nforming; i++)
        if ((uint32_t)s->forming[i]->number == number)
            s->forming[i]->made = true;
}

static void is_removed(struct engine *e, uint32_t number)
{
    struct sets *sets = &e->sets;
    for (size_t i = 0; i < sets->n; i++)
        if ((uint32_t)sets->table[i]->number == number && sets->table[i]->circle.ending &&
            !sets->table[i]->removed) {
            sets->table[i]->removed = true;
            set_claims_removed(e, (int)number); /* the rank that said it may be lost next */
        }
}

int set_claims_take(struct engine *e, struct buf *buf, struct err *err)
{
    struct set_claims *s = &e->sets.claims;
    struct reader r = reader_over(buf->data, buf->len);
    uint32_t serial = reader_u32(&r);
    for (unsigned n = reader_u8(&r); n > 0 && !r.failed; n--)
        is_made(e, reader_u32(&r));
    for (unsigned n = reader_u8(&r); n > 0 && !r.failed; n--)
        is_removed(e, reader_u32(&r));
    if (r.failed)
        return err_set(err, EPROTO, "what it says about sets is cut short");
    s->serial = serial > s->serial ? serial : s->serial;
    buf_consume(buf, r.pos);
    return 0;
}
