/* SPDX-License-Identifier: Apache-2.0
 *
 * rejoin: see rejoin.h.
 */
#include "core/member/rejoin.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"

static json_t *member_pack(const struct rejoin_member *m)
{
    json_t *j = json_pack(
        "{s:i, s:i, s:i, s:I, s:b, s:b, s:i, s:b, s:b, s:b, s:b, s:b, s:I, s:I, s:I}", "member",
        m->member, "local_rank", m->local_rank, "pid", m->pid, "epoch", (json_int_t)m->epoch,
        "over", m->over, "dead", m->dead, "code", m->code, "hello", m->hello, "arrived", m->arrived,
        "bye", m->bye, "out", m->out, "leaving", m->leaving, "done", (json_int_t)m->done, "batches",
        (json_int_t)m->batches, "bytes", (json_int_t)m->bytes);
    if (m->text[0])
        json_put(&j, "text", json_lossy_string(m->text, strlen(m->text)));
    if (m->tail[0])
        json_put(&j, "tail", json_lossy_string(m->tail, strlen(m->tail)));
    if (m->waiting)
        json_put(&j, "card",
                 json_pack("{s:s, s:I, s:o}", "why", card_why_name(m->why), "epoch",
                           (json_int_t)m->was_in, "bytes", json_bytes(m->card.data, m->card.len)));
    return j;
}

json_t *rejoin_pack(const struct rejoin *rejoin)
{
    json_t *list = json_array();
    for (int i = 0; i < rejoin->n; i++)
        json_append(&list, member_pack(&rejoin->members[i]));
    json_t *j = json_pack("{s:I, s:i, s:o}", "change", (json_int_t)rejoin->change, "known",
                          rejoin->known, "members", list);
    if (rejoin->world.n > 0)
        json_put(&j, "roster", roster_pack(&rejoin->world));
    else if (rejoin->world.epoch > 0)
        json_put(&j, "roster_epoch", json_integer((json_int_t)rejoin->world.epoch));
    return j;
}

uint32_t rejoin_read_have(const char *text, size_t len)
{
    auto_json json_t *j = NULL;
    json_int_t have = 0;
    if (json_read(text, len, "response", &j, NULL) < 0 ||
        json_expect(j, "response", NULL, "{s?I}", "have", &have) < 0)
        return 0;
    return have > 0 && have <= UINT32_MAX ? (uint32_t)have : 0;
}

static int card_unpack(json_t *j, struct rejoin_member *ret, struct err *err)
{
    const char *why = "", *text = "";
    json_int_t epoch = 0;
    uint8_t bytes[MEMBER_CARD_MAX];
    size_t len = 0;
    int rc = json_expect(j, "rejoin: card", err, "{s:s, s:I, s:s}", "why", &why, "epoch", &epoch,
                         "bytes", &text);
    if (rc == 0)
        rc = card_why_read(why, &ret->why, err);
    if (rc == 0 && (epoch < 0 || epoch > UINT32_MAX))
        rc = err_set(err, EINVAL, "rejoin: card: epoch %lld", (long long)epoch);
    if (rc == 0)
        rc = json_bytes_read(text, "rejoin: card", bytes, sizeof(bytes), &len, err);
    if (rc < 0)
        return rc;
    ret->waiting = true;
    ret->was_in = (uint32_t)epoch;
    buf_put(&ret->card, bytes, len);
    return ret->card.failed ? err_set(err, ENOMEM, "no memory for a card") : 0;
}

static int member_check(const struct rejoin_member *m, json_int_t epoch, json_int_t done,
                        json_int_t batches, json_int_t bytes, struct err *err)
{
    if (m->member < 0 || m->member >= MEMBER_NUMBER_MAX)
        return err_set(err, EINVAL, "rejoin: member %d", m->member);
    if (m->local_rank < 0 || m->local_rank >= MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "rejoin: member %d: local rank %d", m->member, m->local_rank);
    if (epoch < 0 || epoch > UINT32_MAX || done < 0 || batches < 0 || bytes < 0)
        return err_set(err, EINVAL, "rejoin: member %d: epoch, done, batches or bytes", m->member);
    return 0;
}

/* The caller frees what was filled, even on failure. */
static int member_unpack(json_t *j, struct rejoin_member *m, struct err *err)
{
    const char *text = "", *tail = "";
    json_int_t epoch = 0, done = 0, batches = 0, bytes = 0;
    int over = 0, dead = 0, hello = 0, arrived = 0, bye = 0, out = 0, leaving = 0;
    json_t *card = NULL;
    int rc = json_expect(j, "rejoin: member", err,
                         "{s:i, s:i, s:i, s:I, s:b, s:b, s:i, s:b, s?b, s:b, s:b, s:b, s?I, s?I, "
                         "s?I, s?s, s?s, s?o}",
                         "member", &m->member, "local_rank", &m->local_rank, "pid", &m->pid,
                         "epoch", &epoch, "over", &over, "dead", &dead, "code", &m->code, "hello",
                         &hello, "arrived", &arrived, "bye", &bye, "out", &out, "leaving", &leaving,
                         "done", &done, "batches", &batches, "bytes", &bytes, "text", &text, "tail",
                         &tail, "card", &card);
    if (rc == 0)
        rc = member_check(m, epoch, done, batches, bytes, err);
    if (rc == 0)
        rc = member_copy_text(m->text, sizeof(m->text), text, "rejoin: text", err);
    if (rc == 0)
        rc = member_copy_text(m->tail, sizeof(m->tail), tail, "rejoin: tail", err);
    if (rc == 0 && card)
        rc = card_unpack(card, m, err);
    m->epoch = (uint32_t)epoch;
    m->done = (uint64_t)done;
    m->batches = (uint64_t)batches;
    m->bytes = (uint64_t)bytes;
    m->over = over;
    m->dead = dead;
    m->hello = hello;
    m->arrived = arrived;
    m->bye = bye;
    m->out = out;
    m->leaving = leaving;
    return rc;
}

int rejoin_unpack(json_t *j, struct rejoin *ret, struct err *err)
{
    struct rejoin body = {0};
    json_int_t change = 0, epoch = 0;
    json_t *list = NULL, *world = NULL;
    int rc = json_expect(j, "rejoin", err, "{s:I, s?i, s:o, s?o, s?I}", "change", &change, "known",
                         &body.known, "members", &list, "roster", &world, "roster_epoch", &epoch);
    if (rc == 0 && (epoch < 0 || epoch > UINT32_MAX))
        rc = err_set(err, EINVAL, "rejoin: roster_epoch %lld", (long long)epoch);
    if (rc == 0 && (change < 0 || change > UINT32_MAX))
        rc = err_set(err, EINVAL, "rejoin: change %lld", (long long)change);
    if (rc == 0 && (body.known < 0 || body.known > MEMBER_NUMBER_MAX))
        rc = err_set(err, EINVAL, "rejoin: known %d", body.known);
    if (rc == 0 && (!json_is_array(list) || json_array_size(list) > MEMBER_RANKS_MAX))
        rc = err_set(err, EINVAL, "rejoin: members: want a list of at most %d", MEMBER_RANKS_MAX);
    if (rc < 0)
        return rc;
    int n = (int)json_array_size(list);
    body.change = (uint32_t)change;
    body.world.epoch = (uint32_t)epoch;
    body.members = calloc((size_t)n + 1, sizeof(*body.members));
    if (!body.members)
        return err_set(err, ENOMEM, "no memory for %d members", n);
    for (; body.n < n && rc == 0; body.n++)
        rc = member_unpack(json_array_get(list, (size_t)body.n), &body.members[body.n], err);
    if (rc == 0 && world)
        rc = roster_unpack(world, &body.world, err);
    if (rc < 0)
        rejoin_fini(&body);
    else
        *ret = body;
    return rc;
}

void rejoin_fini(struct rejoin *rejoin)
{
    for (int i = 0; i < rejoin->n; i++)
        buf_fini(&rejoin->members[i].card);
    free(rejoin->members);
    roster_body_fini(&rejoin->world);
    *rejoin = (struct rejoin){0};
}
