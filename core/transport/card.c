/* SPDX-License-Identifier: Apache-2.0
 *
 * card: see card.h.
 */
#include "core/transport/card.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/hash.h"
#include "core/base/hex.h"
#include "core/base/mac.h"

static uint64_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* Does not allocate: a failed allocation must not make two ranks of one host look like ranks of
 * two. */
static void read_boot_id(uint8_t ret[16])
{
    auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    char text[64];
    uint8_t id[16] = {0};
    size_t digits = 0;
    ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof(text));
    for (ssize_t i = 0; i < len && digits < 32; i++) {
        int d = hex_digit(text[i]);
        if (d < 0)
            continue;
        id[digits / 2] |= (uint8_t)(digits % 2 ? d : d << 4);
        digits++;
    }
    memset(ret, 0, 16);
    if (digits == 32)
        memcpy(ret, id, 16);
}

static uint64_t agent_of(int agent_fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (agent_fd < 0 || getsockopt(agent_fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return 0;
    return cred.pid > 0 ? (uint64_t)cred.pid : 0;
}

void card_fill(struct card *card, int agent_fd)
{
    *card = (struct card){0};
    mac_random(card->uid, sizeof(card->uid));
    read_boot_id(card->boot_id);
    card->netns = inode_of("/proc/self/ns/net");
    card->pidns = inode_of("/proc/self/ns/pid");
    card->agent = agent_of(agent_fd);
    card->user = (uint32_t)geteuid();
    const char *split = env_get("LOCALITY");
    card->split = split ? hash_str(split) : 0;
}

void card_within(struct card *card, const struct card *own)
{
    *card = *own;
    mac_random(card->uid, sizeof(card->uid));
    card->agent = 0;
    card->flags = 0;
    card->naddrs = 0;
}

void card_encode(const struct card *card, struct buf *out)
{
    buf_put_u8(out, CARD_VERSION);
    buf_put(out, card->uid, sizeof(card->uid));
    buf_put(out, card->boot_id, sizeof(card->boot_id));
    buf_put_u64(out, card->netns);
    buf_put_u64(out, card->pidns);
    buf_put_u64(out, card->agent);
    buf_put_u64(out, card->split);
    buf_put_u32(out, card->user);
    buf_put_u32(out, card->flags);
    buf_put_u8(out, (uint8_t)card->naddrs);
    for (size_t i = 0; i < card->naddrs; i++) {
        const struct sock_addr *a = &card->addrs[i];
        bool v4 = a->family == AF_INET;
        buf_put_u8(out, v4 ? 4 : 6);
        buf_put_u8(out, a->prefix);
        buf_put_u16(out, a->port);
        buf_put(out, a->ip, v4 ? 4 : 16);
    }
}

static void decode_addr(struct reader *r, struct sock_addr *a)
{
    uint8_t version = reader_u8(r);
    size_t n = version == 4 ? 4 : 16;
    a->family = version == 4 ? AF_INET : AF_INET6;
    a->prefix = reader_u8(r);
    a->port = reader_u16(r);
    const void *ip = reader_bytes(r, n);
    if (ip)
        memcpy(a->ip, ip, n);
    if ((version != 4 && version != 6) || a->prefix > 8 * n || a->port == 0)
        r->failed = true;
}

static void decode_id(struct reader *r, uint8_t dst[16])
{
    const void *p = reader_bytes(r, 16);
    if (p)
        memcpy(dst, p, 16);
}

int card_decode(const void *data, size_t len, struct card *ret, struct err *err)
{
    struct reader r = reader_over(data, len);
    struct card card = {0};
    unsigned version = reader_u8(&r);
    if (!r.failed && version != CARD_VERSION)
        return err_set(err, EPROTO, "speaks version %u of the protocol, this rank %d", version,
                       CARD_VERSION);
    decode_id(&r, card.uid);
    decode_id(&r, card.boot_id);
    card.netns = reader_u64(&r);
    card.pidns = reader_u64(&r);
    card.agent = reader_u64(&r);
    card.split = reader_u64(&r);
    card.user = reader_u32(&r);
    card.flags = reader_u32(&r);
    card.naddrs = reader_u8(&r);
    if (card.naddrs > SOCK_MAX_ADDRS)
        r.failed = true;
    for (size_t i = 0; i < card.naddrs && !r.failed; i++)
        decode_addr(&r, &card.addrs[i]);
    if (!reader_ok(&r))
        return err_set(err, EPROTO, "its card of %zu bytes is malformed", len);
    *ret = card;
    return 0;
}

bool card_same_host(const struct card *a, const struct card *b)
{
    static const uint8_t unknown[16];
    if (!(a->flags & b->flags & CARD_SHM) || a->split != b->split || a->user != b->user ||
        memcmp(a->boot_id, unknown, 16) == 0 || memcmp(a->boot_id, b->boot_id, 16) != 0)
        return false;
    if (a->agent || b->agent)
        return a->agent == b->agent && a->pidns == b->pidns && a->pidns != 0;
    return a->netns == b->netns && a->netns != 0 && (a->flags & b->flags & CARD_UNIX);
}
