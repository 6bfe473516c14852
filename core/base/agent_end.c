/* SPDX-License-Identifier: Apache-2.0
 *
 * agent_end: see agent_end.h.
 */
#include "core/base/agent_end.h"

#include <stdio.h>
#include <string.h>

#define HEAD "hvd-agent: "

static const char *const words[AGENT_ENDS] = {
    [AGENT_END_AWAY] = "operator-away",
    [AGENT_END_REFUSED] = "operator-refused",
    [AGENT_END_SETTING] = "invalid-setting",
    [AGENT_END_INTERNAL] = "internal-error",
};

void agent_end_write(enum agent_end end, const char *text, char *dst, size_t size)
{
    snprintf(dst, size, HEAD "%s: %s", words[end], text);
}

enum agent_end agent_end_read(const char *message)
{
    size_t head = sizeof(HEAD) - 1;
    if (strncmp(message, HEAD, head) != 0)
        return AGENT_END_NONE;
    for (int i = AGENT_END_NONE + 1; i < AGENT_ENDS; i++) {
        size_t n = strlen(words[i]);
        if (strncmp(message + head, words[i], n) == 0 && message[head + n] == ':')
            return (enum agent_end)i;
    }
    return AGENT_END_NONE;
}

bool agent_end_is_disruption(enum agent_end end)
{
    return end == AGENT_END_AWAY || end == AGENT_END_REFUSED;
}
