/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_lifeline: what the other side of a lifeline writes, and /proc/PID/stat of a process that has
 * chosen its name. The first byte chooses between the words that a watcher sees one after the
 * other, the page that a holder gets, and the line of a state.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/lifeline.h"
#include "core/base/lifeline_page.h"
#include "core/base/vitals.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void words(const uint8_t *data, size_t size)
{
    enum lifeline_state state = LIFELINE_NEW;
    uint32_t old = 0, word;
    for (; size >= sizeof(word) && state <= LIFELINE_HELD; data += sizeof(word)) {
        memcpy(&word, data, sizeof(word));
        size -= sizeof(word);
        enum lifeline_state next = lifeline_next(state, old, word);
        /* never back, and never to another holder */
        if (next < state || (state == LIFELINE_HELD && next == LIFELINE_HELD && word != old))
            abort();
        if (next == LIFELINE_DEAD && !(word & FUTEX_OWNER_DIED))
            abort();
        state = next;
        old = word;
    }
}

static void page(const uint8_t *data, size_t size)
{
    struct lifeline_page first = {0};
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, LIFELINE_PAGE) < 0)
        abort();
    memcpy(&first, data, size < sizeof(first) ? size : sizeof(first));
    if (pwrite(fd, &first, sizeof(first), 0) != (ssize_t)sizeof(first) ||
        fcntl(fd, F_ADD_SEALS, LIFELINE_SEALS) < 0)
        abort();
    if (lifeline_hold(fd, NULL) == 0 && first.magic != LIFELINE_MAGIC)
        abort();
    lifeline_release();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 3 == 0) {
        words(data + 1, size - 1);
    } else if (data[0] % 3 == 1) {
        page(data + 1, size - 1);
    } else {
        char *text = calloc(size, 1), buf[128];
        if (!text)
            return 0;
        memcpy(text, data + 1, size - 1);
        struct vitals v = {.state = vitals_parse(text)};
        if (strlen(vitals_text(&v, buf, sizeof(buf))) < 10)
            abort();
        free(text);
    }
    return 0;
}
