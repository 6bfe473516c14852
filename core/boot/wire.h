/* SPDX-License-Identifier: Apache-2.0
 *
 * wire: the frames that ranks exchange at a rendezvous, and their proofs. Pure: no I/O.
 *
 * A frame is {u32 magic, u16 version, u16 type, u32 length of body}, little endian, then the body:
 *
 *   type       direction     body
 *   HELLO      peer > root   u32 rank, u32 size, 32 bytes nonce
 *   CHALLENGE  root > peer   32 bytes nonce, proof
 *   CARD       peer > root   card, proof
 *   ROSTER     root > peer   u32 size, 32 bytes session, size x {u32 length, card}, proof
 *   REFUSE     root > peer   text, proof
 *
 * A proof is the last 32 bytes of a body: a MAC with the key over the type, the HELLO, the root's
 * nonce and everything before the proof in the body. Both nonces are fresh, which prevents replay.
 * Neither end uses any byte of a body whose proof is wrong.
 */
#ifndef HVD_BOOT_WIRE_H
#define HVD_BOOT_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/mac.h"

#define WIRE_HEADER_SIZE 12
#define WIRE_HELLO_SIZE  (8 + MAC_NONCE_SIZE)
#define WIRE_TEXT_MAX    512

enum wire_type {
    WIRE_HELLO = 1,
    WIRE_CHALLENGE,
    WIRE_CARD,
    WIRE_ROSTER,
    WIRE_REFUSE,
    WIRE_TYPES,
};

struct wire_frame {
    enum wire_type type;
    const uint8_t *body; /* inside the parsed memory */
    size_t len;
    size_t used; /* bytes of the whole frame, header included */
};

/* What both ends of a connection know and every proof covers. */
struct wire_session {
    const uint8_t *key; /* MAC_KEY_SIZE bytes */
    uint8_t hello[WIRE_HELLO_SIZE];
    uint8_t nonce[MAC_NONCE_SIZE]; /* the root's nonce */
};

/* The longest body of a type in a job of size ranks. */
size_t wire_body_max(enum wire_type type, int size);

/* 0: a whole frame is at the start of data; 1: more bytes are needed; -EPROTO: not a frame of hvd,
 * of a type not in allowed (bits 1 << type), or too long for its type, which the header alone
 * decides. */
int wire_parse(const uint8_t *data, size_t len, unsigned allowed, int size, struct wire_frame *ret);

void wire_put_header(struct buf *out, enum wire_type type, size_t body_len);

/* Writes a whole HELLO and copies its body into session->hello. */
void wire_put_hello(struct buf *out, struct wire_session *session, int rank, int size,
                    const uint8_t nonce[MAC_NONCE_SIZE]);
int wire_get_hello(const struct wire_frame *frame, uint32_t *ret_rank, uint32_t *ret_size);

/* wire_digest(): the digest of a body, the same for all connections. wire_prove(): the proof for
 * one connection. */
void wire_digest(const uint8_t key[MAC_KEY_SIZE], const void *body, size_t len,
                 uint8_t ret[MAC_SIZE]);
void wire_prove(const struct wire_session *session, enum wire_type type,
                const uint8_t digest[MAC_SIZE], uint8_t ret_proof[MAC_SIZE]);

/* Writes a whole frame: body, then its proof. */
void wire_put_proven(struct buf *out, const struct wire_session *session, enum wire_type type,
                     const void *body, size_t len);

/* 0, and the length of the body without the proof; -EACCES: the proof is wrong. */
int wire_check(const struct wire_session *session, const struct wire_frame *frame, size_t *ret_len);

/* Writes the body of a ROSTER without its proof. */
void wire_put_roster(struct buf *body, const struct buf *cards, int size,
                     const uint8_t session[MAC_NONCE_SIZE]);

/* Fills cards[size]; -EPROTO or -ENOMEM. The caller frees what was filled, also after an error. */
int wire_get_roster(const uint8_t *body, size_t len, int size, struct buf *cards,
                    uint8_t ret_session[MAC_NONCE_SIZE]);

#endif
