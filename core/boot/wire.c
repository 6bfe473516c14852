/* SPDX-License-Identifier: Apache-2.0
 *
 * wire: see wire.h.
 */
#include "core/boot/wire.h"

#include <errno.h>
#include <string.h>

#include "core/boot/boot.h"

#define WIRE_MAGIC   0x42445648u /* "HVDB" */
#define WIRE_VERSION 1

/* One role per frame type: a proof of one type is invalid in another. */
static const char *const roles[WIRE_TYPES] = {
    [WIRE_CHALLENGE] = "hvd boot challenge",
    [WIRE_CARD] = "hvd boot card",
    [WIRE_ROSTER] = "hvd boot roster",
    [WIRE_REFUSE] = "hvd boot refuse",
};

size_t wire_body_max(enum wire_type type, int size)
{
    switch (type) {
    case WIRE_HELLO:
        return WIRE_HELLO_SIZE;
    case WIRE_CHALLENGE:
        return MAC_NONCE_SIZE + MAC_SIZE;
    case WIRE_CARD:
        return BOOT_CARD_MAX + MAC_SIZE;
    case WIRE_ROSTER:
        return 4 + MAC_NONCE_SIZE + (size_t)size * (4 + BOOT_CARD_MAX) + MAC_SIZE;
    case WIRE_REFUSE:
        return WIRE_TEXT_MAX + MAC_SIZE;
    default:
        return 0;
    }
}

int wire_parse(const uint8_t *data, size_t len, unsigned allowed, int size, struct wire_frame *ret)
{
    /* Recognizes other protocols by their first bytes, before a header is complete. */
    static const uint8_t magic[4] = {'H', 'V', 'D', 'B'};
    if (len && memcmp(data, magic, len < sizeof(magic) ? len : sizeof(magic)) != 0)
        return -EPROTO;
    if (len < WIRE_HEADER_SIZE)
        return 1;
    struct reader r = reader_over(data, len);
    reader_u32(&r);
    uint16_t version = reader_u16(&r), type = reader_u16(&r);
    uint32_t body = reader_u32(&r);
    if (version != WIRE_VERSION || type == 0 || type >= WIRE_TYPES || !(allowed & 1u << type) ||
        body > wire_body_max((enum wire_type)type, size))
        return -EPROTO;
    if (len - WIRE_HEADER_SIZE < body)
        return 1;
    *ret = (struct wire_frame){.type = (enum wire_type)type,
                               .body = data + WIRE_HEADER_SIZE,
                               .len = body,
                               .used = WIRE_HEADER_SIZE + (size_t)body};
    return 0;
}

void wire_put_header(struct buf *out, enum wire_type type, size_t body_len)
{
    buf_put_u32(out, WIRE_MAGIC);
    buf_put_u16(out, WIRE_VERSION);
    buf_put_u16(out, (uint16_t)type);
    buf_put_u32(out, (uint32_t)body_len);
}

void wire_put_hello(struct buf *out, struct wire_session *session, int rank, int size,
                    const uint8_t nonce[MAC_NONCE_SIZE])
{
    wire_put_header(out, WIRE_HELLO, WIRE_HELLO_SIZE);
    size_t at = out->len;
    buf_put_u32(out, (uint32_t)rank);
    buf_put_u32(out, (uint32_t)size);
    buf_put(out, nonce, MAC_NONCE_SIZE);
    if (!out->failed)
        memcpy(session->hello, out->data + at, WIRE_HELLO_SIZE);
}

int wire_get_hello(const struct wire_frame *frame, uint32_t *ret_rank, uint32_t *ret_size)
{
    if (frame->type != WIRE_HELLO || frame->len != WIRE_HELLO_SIZE)
        return -EPROTO;
    struct reader r = reader_over(frame->body, frame->len);
    *ret_rank = reader_u32(&r);
    *ret_size = reader_u32(&r);
    return 0;
}

void wire_digest(const uint8_t key[MAC_KEY_SIZE], const void *body, size_t len,
                 uint8_t ret[MAC_SIZE])
{
    const struct mac_part part = {body, len};
    mac_make(key, "hvd boot body", &part, 1, ret);
}

void wire_prove(const struct wire_session *session, enum wire_type type,
                const uint8_t digest[MAC_SIZE], uint8_t ret_proof[MAC_SIZE])
{
    const struct mac_part parts[] = {
        {session->hello, WIRE_HELLO_SIZE}, {session->nonce, MAC_NONCE_SIZE}, {digest, MAC_SIZE}};
    mac_make(session->key, roles[type], parts, 3, ret_proof);
}

void wire_put_proven(struct buf *out, const struct wire_session *session, enum wire_type type,
                     const void *body, size_t len)
{
    uint8_t digest[MAC_SIZE], proof[MAC_SIZE];
    wire_digest(session->key, body, len, digest);
    wire_prove(session, type, digest, proof);
    wire_put_header(out, type, len + MAC_SIZE);
    buf_put(out, body, len);
    buf_put(out, proof, MAC_SIZE);
}

int wire_check(const struct wire_session *session, const struct wire_frame *frame, size_t *ret_len)
{
    if (frame->len < MAC_SIZE || frame->type >= WIRE_TYPES || !roles[frame->type])
        return -EACCES;
    size_t len = frame->len - MAC_SIZE;
    uint8_t digest[MAC_SIZE];
    wire_digest(session->key, frame->body, len, digest);
    const struct mac_part parts[] = {
        {session->hello, WIRE_HELLO_SIZE}, {session->nonce, MAC_NONCE_SIZE}, {digest, MAC_SIZE}};
    if (!mac_check(session->key, roles[frame->type], parts, 3, frame->body + len))
        return -EACCES;
    *ret_len = len;
    return 0;
}

void wire_put_roster(struct buf *body, const struct buf *cards, int size,
                     const uint8_t session[MAC_NONCE_SIZE])
{
    buf_put_u32(body, (uint32_t)size);
    buf_put(body, session, MAC_NONCE_SIZE);
    for (int r = 0; r < size; r++) {
        buf_put_u32(body, (uint32_t)cards[r].len);
        buf_put(body, cards[r].data, cards[r].len);
    }
}

int wire_get_roster(const uint8_t *body, size_t len, int size, struct buf *cards,
                    uint8_t ret_session[MAC_NONCE_SIZE])
{
    struct reader r = reader_over(body, len);
    if (reader_u32(&r) != (uint32_t)size)
        return -EPROTO;
    const void *session = reader_bytes(&r, MAC_NONCE_SIZE);
    for (int i = 0; i < size; i++) {
        uint32_t n = reader_u32(&r);
        const void *card = n <= BOOT_CARD_MAX ? reader_bytes(&r, n) : NULL;
        if (r.failed || (n && !card))
            return -EPROTO;
        buf_reset(&cards[i]);
        buf_put(&cards[i], card, n);
        if (cards[i].failed)
            return -ENOMEM;
    }
    if (!reader_ok(&r) || !session)
        return -EPROTO;
    memcpy(ret_session, session, MAC_NONCE_SIZE);
    return 0;
}
