/* SPDX-License-Identifier: Apache-2.0
 *
 * cards: the bodies that carry ranks' cards: POST /v1/cards and the roster. See protocol.h.
 */
#include <string.h>

#include "core/json/json.h"
#include "core/member/rejoin.h"

static const char *const why_names[CARD_WHYS] = {
    [CARD_JOIN] = "join",
    [CARD_REVOKED] = "revoked",
    [CARD_BOUNDARY] = "boundary",
    [CARD_ENTER] = "enter",
};

const char *card_why_name(enum card_why why)
{
    return why_names[why];
}

static void cards_free(struct card *cards, int n)
{
    for (int i = 0; i < n; i++)
        buf_fini(&cards[i].bytes);
    free(cards);
}

/* The cards in POST /v1/cards. */
static json_t *card_list(const struct card *cards, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const struct card *c = &cards[i];
        json_append(&list, json_pack("{s:i, s:s, s:I, s:o}", "member", c->member, "why",
                                     why_names[c->why], "epoch", (json_int_t)c->epoch, "card",
                                     json_bytes(c->bytes.data, c->bytes.len)));
    }
    return list;
}

/* The members of a roster. */
static json_t *world_list(const struct card *cards, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const struct card *c = &cards[i];
        json_t *j = json_pack("{s:i, s:i, s:b, s:s, s:s, s:o}", "rank", c->rank, "member",
                              c->member, "new", c->is_new, "agent", c->agent, "host", c->host,
                              "card", json_bytes(c->bytes.data, c->bytes.len));
        if (c->place != c->rank)
            json_put(&j, "place", json_integer(c->place));
        json_append(&list, j);
    }
    return list;
}

int card_why_read(const char *name, enum card_why *ret, struct err *err)
{
    for (int i = 0; i < CARD_WHYS; i++) {
        if (strcmp(why_names[i], name) == 0) {
            *ret = (enum card_why)i;
            return 0;
        }
    }
    return err_set(err, EINVAL, "card: unknown why \"%.40s\"", name);
}

static int name_read(const char *src, char *dst, const char *field, struct err *err)
{
    if (strlen(src) >= MEMBER_NAME_MAX)
        return err_set(err, EINVAL, "%s: longer than %d bytes", field, MEMBER_NAME_MAX - 1);
    memcpy(dst, src, strlen(src) + 1);
    return 0;
}

/* Reads a card of POST /v1/cards or of a roster. Absent fields stay zero. */
static int card_read(json_t *j, struct card *ret, struct err *err)
{
    const char *text = "", *agent = "", *host = "", *why = why_names[CARD_JOIN];
    json_int_t epoch = 0;
    int is_new = 0, place = -1;
    int rc = json_expect(j, "card", err, "{s:i, s:s, s?i, s?i, s?b, s?s, s?s, s?s, s?I}", "member",
                         &ret->member, "card", &text, "rank", &ret->rank, "place", &place, "new",
                         &is_new, "agent", &agent, "host", &host, "why", &why, "epoch", &epoch);
    if (rc == 0 && (ret->member < 0 || ret->member >= MEMBER_NUMBER_MAX))
        rc = err_set(err, EINVAL, "card: member %d", ret->member);
    if (rc == 0 && (epoch < 0 || epoch > UINT32_MAX))
        rc = err_set(err, EINVAL, "card: epoch %lld", (long long)epoch);
    if (rc == 0)
        rc = card_why_read(why, &ret->why, err);
    if (rc == 0)
        rc = name_read(agent, ret->agent, "card: agent", err);
    if (rc == 0)
        rc = name_read(host, ret->host, "card: host", err);
    if (rc < 0)
        return rc;
    ret->epoch = (uint32_t)epoch;
    ret->is_new = is_new;
    ret->place = place < 0 ? ret->rank : place;
    uint8_t bytes[MEMBER_CARD_MAX];
    size_t len = 0;
    rc = json_bytes_read(text, "card", bytes, sizeof(bytes), &len, err);
    if (rc < 0)
        return rc;
    buf_put(&ret->bytes, bytes, len);
    return ret->bytes.failed ? err_set(err, ENOMEM, "no memory for a card") : 0;
}

/* A list of at most MEMBER_RANKS_MAX cards. */
static int card_list_read(json_t *list, struct card **ret_cards, int *ret_n, struct err *err)
{
    if (!json_is_array(list) || json_array_size(list) > MEMBER_RANKS_MAX)
        return err_set(err, EINVAL, "cards: want a list of at most %d", MEMBER_RANKS_MAX);
    int n = (int)json_array_size(list), rc = 0, i;
    struct card *cards = calloc((size_t)n + 1, sizeof(*cards));
    if (!cards)
        return err_set(err, ENOMEM, "no memory for %d cards", n);
    for (i = 0; i < n && rc == 0; i++)
        rc = card_read(json_array_get(list, (size_t)i), &cards[i], err);
    if (rc < 0) {
        cards_free(cards, i);
        return rc;
    }
    *ret_cards = cards;
    *ret_n = n;
    return 0;
}

char *cards_write(const struct cards_body *body)
{
    auto_json json_t *j =
        json_pack("{s:s, s:I, s:I, s:o}", "agent", body->agent, "seq", (json_int_t)body->seq,
                  "epoch", (json_int_t)body->epoch, "cards", card_list(body->cards, body->n));
    return json_write(j);
}

int cards_read(const char *text, size_t len, struct cards_body *ret, struct err *err)
{
    struct cards_body body = {0};
    const char *agent = "";
    json_int_t seq = 0, epoch = 0;
    json_t *list = NULL;
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, "cards", &j, err);
    if (rc == 0)
        rc = json_expect(j, "cards", err, "{s:s, s:I, s:I, s:o}", "agent", &agent, "seq", &seq,
                         "epoch", &epoch, "cards", &list);
    if (rc == 0)
        rc = name_read(agent, body.agent, "cards: agent", err);
    if (rc == 0 && (epoch < 1 || epoch > UINT32_MAX))
        rc = err_set(err, EINVAL, "cards: epoch %lld", (long long)epoch);
    if (rc == 0)
        rc = card_list_read(list, &body.cards, &body.n, err);
    if (rc < 0)
        return rc;
    body.seq = (uint64_t)seq;
    body.epoch = (uint32_t)epoch;
    *ret = body;
    return 0;
}

void cards_fini(struct cards_body *body)
{
    cards_free(body->cards, body->n);
    *body = (struct cards_body){0};
}

json_t *roster_pack(const struct roster_body *body)
{
    json_t *j = json_pack("{s:I, s:i, s:I, s:I, s:I, s:o, s:o}", "epoch", (json_int_t)body->epoch,
                          "size", body->n, "change", (json_int_t)body->change, "announced",
                          (json_int_t)body->announced, "done", (json_int_t)body->departed_done,
                          "key", json_bytes(body->key, sizeof(body->key)), "members",
                          world_list(body->cards, body->n));
    if (body->keep_places)
        json_put(&j, "keep_places", json_true());
    return j;
}

char *roster_write(const struct roster_body *body)
{
    auto_json json_t *j = roster_pack(body);
    return json_write(j);
}

/* Verifies that each rank is there exactly once, in order, and that places rise with the ranks. */
static int check_members(const struct roster_body *body, int size, size_t key_len, struct err *err)
{
    if (key_len != sizeof(body->key))
        return err_set(err, EINVAL, "roster: a key of %zu bytes", key_len);
    if (size != body->n || size < 1)
        return err_set(err, EINVAL, "roster: size %d with %d members", size, body->n);
    for (int i = 0; i < body->n; i++) {
        const struct card *c = &body->cards[i];
        if (c->rank != i)
            return err_set(err, EINVAL, "roster: member %d is rank %d", i, c->rank);
        if (c->place >= MEMBER_RANKS_MAX || (i > 0 && c->place <= body->cards[i - 1].place))
            return err_set(err, EINVAL, "roster: rank %d has place %d", i, c->place);
    }
    return 0;
}

int roster_unpack(json_t *j, struct roster_body *ret, struct err *err)
{
    struct roster_body body = {0};
    const char *key = "";
    json_int_t epoch = 0, change = 0, announced = 0, done = 0;
    int size = 0, keep_places = 0;
    size_t key_len = 0;
    json_t *list = NULL;
    int rc = json_expect(j, "roster", err, "{s:I, s:i, s?I, s?I, s?I, s?b, s:s, s:o}", "epoch",
                         &epoch, "size", &size, "change", &change, "announced", &announced, "done",
                         &done, "keep_places", &keep_places, "key", &key, "members", &list);
    if (rc == 0 && (epoch < 1 || epoch > UINT32_MAX))
        rc = err_set(err, EINVAL, "roster: epoch %lld", (long long)epoch);
    if (rc == 0 && (change < 0 || change > UINT32_MAX))
        rc = err_set(err, EINVAL, "roster: change %lld", (long long)change);
    if (rc == 0 && (announced < 0 || announced > UINT32_MAX))
        rc = err_set(err, EINVAL, "roster: announced %lld", (long long)announced);
    if (rc == 0 && done < 0)
        rc = err_set(err, EINVAL, "roster: done %lld", (long long)done);
    if (rc == 0)
        rc = json_bytes_read(key, "roster: key", body.key, sizeof(body.key), &key_len, err);
    if (rc == 0)
        rc = card_list_read(list, &body.cards, &body.n, err);
    if (rc == 0)
        rc = check_members(&body, size, key_len, err);
    if (rc < 0) {
        roster_body_fini(&body);
        return rc;
    }
    body.epoch = (uint32_t)epoch;
    body.change = (uint32_t)change;
    body.announced = (uint32_t)announced;
    body.departed_done = (uint64_t)done;
    body.keep_places = keep_places;
    *ret = body;
    return 0;
}

int roster_read(const char *text, size_t len, struct roster_body *ret, struct err *err)
{
    auto_json json_t *j = NULL;
    int rc = json_read(text, len, "roster", &j, err);
    return rc < 0 ? rc : roster_unpack(j, ret, err);
}

void roster_body_fini(struct roster_body *body)
{
    cards_free(body->cards, body->n);
    *body = (struct roster_body){0};
}
