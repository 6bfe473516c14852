/* SPDX-License-Identifier: Apache-2.0
 *
 * auth: see auth.h.
 */
#include "core/transport/auth.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/buf.h"
#include "core/base/clock.h"

#define MAGIC 0x68645648u /* "HVdh" */

enum role { ROLE_HELLO = 1, ROLE_CHALLENGE, ROLE_VERSION };

enum state {
    C_CHALLENGE, /* connector: waits for the challenge */
    C_PROOF,     /* connector: waits for the acceptor's proof */
    A_HELLO,
    A_PROOF,
    A_GO,
    DONE,
};

/* How long a peer that has proven the key may take to say that it uses the connection. Where it
 * has said so, closing the connection costs the job: a machine that is too busy to read it must
 * not be the reason. */
#define GO_NS (60 * CLOCK_S)

static const uint8_t go_byte = 'G';

static void put_le(uint8_t *dst, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(v >> (8 * i));
}

/* The first 8 bytes have the same meaning in every version. */
static void put_head(uint8_t *dst, uint8_t cls, enum role role)
{
    put_le(dst, MAGIC, 4);
    put_le(dst + 4, AUTH_VERSION, 2);
    dst[6] = cls;
    dst[7] = (uint8_t)role;
}

static void send_later(struct auth *a, const void *src, size_t n)
{
    memcpy(a->out, src, n);
    a->out_len = n;
}

void auth_connect(struct auth *a, const uint8_t key[MAC_KEY_SIZE], const struct auth_id *id,
                  uint64_t deadline)
{
    *a = (struct auth){.key = key, .id = *id, .deadline = deadline, .state = C_CHALLENGE};
    put_head(a->hello, id->cls, ROLE_HELLO);
    put_le(a->hello + 8, id->epoch, 4);
    put_le(a->hello + 12, id->size, 4);
    put_le(a->hello + 16, id->from, 4);
    put_le(a->hello + 20, id->to, 4);
    mac_random(a->hello + 24, MAC_NONCE_SIZE);
    send_later(a, a->hello, sizeof(a->hello));
}

void auth_accept(struct auth *a, const uint8_t key[MAC_KEY_SIZE], const struct auth_id *expect,
                 uint64_t deadline)
{
    *a = (struct auth){.key = key, .id = *expect, .deadline = deadline, .state = A_HELLO};
    a->accepts = true;
}

static void prove(const struct auth *a, const char *role, uint8_t ret[MAC_SIZE])
{
    const struct mac_part parts[] = {{a->hello, sizeof(a->hello)},
                                     {a->challenge, sizeof(a->challenge)}};
    mac_make(a->key, role, parts, 2, ret);
}

static bool proven(const struct auth *a, const char *role)
{
    const struct mac_part parts[] = {{a->hello, sizeof(a->hello)},
                                     {a->challenge, sizeof(a->challenge)}};
    return mac_check(a->key, role, parts, 2, a->in);
}

static const char connector_role[] = "hvd link connector 1";
static const char acceptor_role[] = "hvd link acceptor 1";

/* Checks the 8 bytes at the beginning of a message. */
static int check_head(struct auth *a, enum role role, struct err *err)
{
    struct reader r = reader_over(a->in, a->in_len);
    uint32_t magic = reader_u32(&r);
    unsigned version = reader_u16(&r);
    reader_u8(&r);
    uint8_t is = reader_u8(&r);
    if (magic != MAGIC)
        return err_set(err, EPROTO, "did not send hvd's greeting");
    if (version != AUTH_VERSION)
        return err_set(err, EPROTO, "speaks version %u of the protocol, this rank %d", version,
                       AUTH_VERSION);
    if (is != role)
        return err_set(err, EPROTO, "sent a greeting out of order");
    return 0;
}

static int take_hello(struct auth *a, struct err *err)
{
    memcpy(a->hello, a->in, sizeof(a->hello));
    struct reader r = reader_over(a->hello, sizeof(a->hello));
    struct auth_id id = {0};
    reader_bytes(&r, 6);
    id.cls = reader_u8(&r);
    reader_u8(&r);
    id.epoch = reader_u32(&r);
    id.size = reader_u32(&r);
    id.from = reader_u32(&r);
    id.to = reader_u32(&r);
    if (id.epoch != a->id.epoch || id.size != a->id.size)
        return err_set(err, EACCES, "belongs to another job or roster (epoch %u of %u ranks)",
                       id.epoch, id.size);
    if (id.to != a->id.to || id.from >= id.size || id.from == id.to || id.cls >= AUTH_CLASSES)
        return err_set(err, EACCES,
                       "is rank %u and asks for rank %u, class %u, which this rank does not serve",
                       id.from, id.to, id.cls);
    a->id = id;
    put_head(a->challenge, id.cls, ROLE_CHALLENGE);
    mac_random(a->challenge + 8, MAC_NONCE_SIZE);
    send_later(a, a->challenge, sizeof(a->challenge));
    a->state = A_PROOF;
    return 0;
}

static size_t wanted(const struct auth *a)
{
    switch (a->state) {
    case C_CHALLENGE:
        return a->in_len < 8 ? 8 : AUTH_CHALLENGE_SIZE;
    case A_HELLO:
        return a->in_len < 8 ? 8 : AUTH_HELLO_SIZE;
    case A_GO:
        return 1;
    default:
        return MAC_SIZE;
    }
}

/* Processes a complete message in a->in. */
static int take(struct auth *a, struct err *err)
{
    uint8_t mac[MAC_SIZE];
    int rc = 0;
    switch (a->state) {
    case C_CHALLENGE:
        rc = check_head(a, ROLE_CHALLENGE, err);
        if (rc < 0 || a->in_len == 8)
            return rc;
        memcpy(a->challenge, a->in, sizeof(a->challenge));
        prove(a, connector_role, mac);
        send_later(a, mac, sizeof(mac));
        a->state = C_PROOF;
        break;
    case C_PROOF:
        if (!proven(a, acceptor_role))
            return err_set(err, EACCES, "has another key");
        a->state = DONE;
        break;
    case A_HELLO:
        rc = check_head(a, ROLE_HELLO, err);
        if (rc < 0 || a->in_len == 8)
            return rc;
        rc = take_hello(a, err);
        break;
    case A_PROOF:
        if (!proven(a, connector_role))
            return err_set(err, EACCES, "has another key");
        prove(a, acceptor_role, mac);
        send_later(a, mac, sizeof(mac));
        a->state = A_GO;
        a->deadline = clock_ns() + GO_NS;
        break;
    case A_GO:
        if (a->in[0] != go_byte)
            return err_set(err, EPROTO, "sent a greeting out of order");
        a->state = DONE;
        break;
    default:
        return err_set(err, EPROTO, "handshake is over");
    }
    a->in_len = 0;
    return rc;
}

static int flush(struct auth *a, int fd)
{
    size_t done = 0;
    int rc = 0;
    while (done < a->out_len) {
        ssize_t put = send(fd, a->out + done, a->out_len - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            rc = errno == EAGAIN ? 1 : -ECONNRESET;
            break;
        }
        done += (size_t)put;
    }
    memmove(a->out, a->out + done, a->out_len - done);
    a->out_len -= done;
    return rc;
}

/* Sends our version to a peer of another version, so that it can name both. */
static void tell_version(const struct auth *a, int fd)
{
    uint8_t head[8];
    if (!a->accepts || a->state != A_HELLO)
        return;
    put_head(head, 0, ROLE_VERSION);
    ssize_t ignored = send(fd, head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored;
}

/* Nothing is left to do before the peer does something. */
static int wait_for_peer(const struct auth *a, struct err *err)
{
    if (deadline_passed(a->deadline))
        return err_set(err, ETIMEDOUT, "did not finish the handshake in time");
    return 1;
}

int auth_progress(struct auth *a, int fd, struct err *err)
{
    for (;;) {
        int rc = flush(a, fd);
        if (rc < 0)
            return err_set(err, ECONNRESET, "closed the connection in the handshake");
        if (a->state == DONE && rc == 0)
            return 0;
        if (rc == 1)
            return wait_for_peer(a, err);
        size_t want = wanted(a);
        ssize_t got = recv(fd, a->in + a->in_len, want - a->in_len, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return wait_for_peer(a, err);
        if (got <= 0)
            return err_set(err, ECONNRESET, "closed the connection in the handshake");
        a->in_len += (size_t)got;
        if (a->in_len < want)
            continue;
        rc = take(a, err);
        if (rc < 0) {
            if (rc == -EPROTO)
                tell_version(a, fd);
            return rc;
        }
    }
}

int auth_go(int fd)
{
    ssize_t put;
    do {
        put = send(fd, &go_byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (put < 0 && errno == EINTR);
    return put == 1 ? 0 : -ECONNRESET;
}

bool auth_has_proven(const struct auth *a)
{
    return a->state == A_GO;
}

bool auth_left_politely(const struct auth *a)
{
    return a->in_len == 0;
}
