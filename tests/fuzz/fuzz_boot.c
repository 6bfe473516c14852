/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_boot: input of the bootstrap. The first byte chooses between a stream of rendezvous frames
 * as rank 0 and as a peer reads them (a wrong proof does not end the stream, because random bytes
 * never have a right one), the roster behind a proof, and the agent's roster and numbers.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/boot/agent.h"
#include "core/boot/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RANKS 4

static void stream(const uint8_t *data, size_t size, unsigned allowed)
{
    static const uint8_t key[MAC_KEY_SIZE] = {1};
    struct wire_session session = {.key = key};
    struct wire_frame frame;
    while (size && wire_parse(data, size, allowed, RANKS, &frame) == 0) {
        uint32_t rank, world;
        size_t len;
        if (frame.used > size || frame.len > wire_body_max(frame.type, RANKS))
            abort();
        wire_get_hello(&frame, &rank, &world);
        if (wire_check(&session, &frame, &len) == 0 && len + MAC_SIZE != frame.len)
            abort();
        data += frame.used;
        size -= frame.used;
    }
}

static void roster(const uint8_t *data, size_t size)
{
    struct buf cards[RANKS] = {{0}};
    uint8_t session[MAC_NONCE_SIZE];
    wire_get_roster(data, size, RANKS, cards, session);
    for (int r = 0; r < RANKS; r++)
        buf_fini(&cards[r]);
}

static void agent(const uint8_t *data, size_t size)
{
    struct boot boot = {.agent_fd = -1, .size = RANKS};
    struct err err;
    bool good = boot_agent_roster(&boot, data, size, &err) == 0;
    for (int r = 0; good && r < boot.size; r++)
        if (boot.places[r] < r || boot.places[r] >= BOOT_SIZE_MAX ||
            (r > 0 && boot.places[r] <= boot.places[r - 1]))
            abort();
    boot_fini(&boot);
    if (boot_agent_numbers(&boot, data, size, &err) == 0 &&
        (boot.numbers.rank >= boot.numbers.size || boot.numbers.local_size > boot.numbers.size ||
         boot.numbers.place < boot.numbers.rank))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    /* An exact copy, so that a sanitizer sees a read past the end. */
    uint8_t *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    uint8_t *exact = malloc(size - 1);
    if (exact && size > 1)
        memcpy(exact, copy + 1, size - 1);
    if (exact && copy[0] % 4 == 0)
        stream(exact, size - 1, 1u << WIRE_HELLO | 1u << WIRE_CARD);
    else if (exact && copy[0] % 4 == 1)
        stream(exact, size - 1, ~0u);
    else if (exact && copy[0] % 4 == 2)
        roster(exact, size - 1);
    else if (exact)
        agent(exact, size - 1);
    free(exact);
    free(copy);
    return 0;
}
