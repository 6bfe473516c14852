/* SPDX-License-Identifier: Apache-2.0
 *
 * connect: tries connections from each worker to every address of every other worker. See
 * workers.h.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "diagnostics/answer.h"
#include "diagnostics/workers/workers.h"

#define DIAL_MS  2000
#define FAILURES 64 /* lines of one worker; more failures would add no information */

int workers_connect(const struct workers_peer *peers, int rank, int size,
                    const uint8_t token[WORKERS_TOKEN], struct buf *out)
{
    char list[32];
    int tried = 0, failed = 0;
    snprintf(list, sizeof(list), "connect_%d", rank);
    /* Each worker starts with its neighbour, so that not all connect to the same one at a time. */
    for (int step = 1; step < size && failed < FAILURES; step++) {
        const struct workers_peer *to = &peers[(rank + step) % size];
        for (int i = 0; i < to->nips && failed < FAILURES; i++) {
            int fd = workers_dial(to->ips[i], to->port, token, DIAL_MS);
            tried++;
            if (fd >= 0) {
                close(fd);
                continue;
            }
            answer_put_at(out, list, failed, "to", "%d", (rank + step) % size);
            answer_put_at(out, list, failed, "ip", "%s", to->ips[i]);
            answer_put_at(out, list, failed, "error", "%s", strerror(-fd));
            failed++;
        }
    }
    answer_put_at(out, "worker", rank, "tried", "%d", tried);
    return out->failed ? -ENOMEM : 0;
}
