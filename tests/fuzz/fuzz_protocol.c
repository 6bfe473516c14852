/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_protocol: every body of the membership protocol, the agent's configuration and its output
 * frames, and a rank's frame SETS. The first byte chooses. An accepted body is written and read
 * again, and applied to a roster.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config.h"
#include "agent/frames.h"
#include "agent/saved_job.h"
#include "core/base/cleanup.h"
#include "core/member/protocol.h"
#include "core/member/roster.h"
#include "core/member/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct roster roster;

static void make_roster(void)
{
    static const uint8_t key[MEMBER_KEY_SIZE] = {1};
    const struct roster_host hosts[] = {{"a", "h", 2, 4}};
    const struct roster_elastic elastic = {.min = 1, .max = 4, .start_limit = 1};
    struct join_body join = {.agent = "a", .pid = 1};
    if (roster_init(&roster, "job", key, hosts, 1, NULL) < 0 ||
        roster_make_elastic(&roster, &elastic, NULL) < 0 ||
        roster_join(&roster, &join, 1, NULL) < 0)
        abort();
}

/* An agent's report for a coordinator without state: it becomes a roster or is refused. */
static void rebuild(struct join_body *join)
{
    const struct roster_host hosts[] = {{"a", "h", 0, 4}, {"b", "i", 0, 4}};
    const struct roster_elastic elastic = {
        .min = 1, .max = 4, .start_limit = 1, .keep_places = true};
    const struct roster_saved saved = {.term = 1, .target = 2, .nmembers = 4};
    struct roster r;
    if (roster_begin_rebuild(&r, "job", (const uint8_t[MEMBER_KEY_SIZE]){1}, hosts, 2, &elastic,
                             &saved, 5, NULL) < 0)
        abort();
    roster_join(&r, join, 2, NULL);
    roster_tick(&r, 5);
    roster_tick(&r, 6);
    auto_free char *status = status_text(&r, 8);
    if (!status || r.rebuilding)
        abort();
    roster_fini(&r);
}

static void join_or_welcome(const char *text, size_t len)
{
    struct join_body join, again;
    struct welcome_body welcome;
    if (join_read(text, len, &join, NULL) == 0) {
        auto_free char *copy = join_write(&join);
        if (!copy || join_read(copy, strlen(copy), &again, NULL) < 0)
            abort();
        roster_join(&roster, &join, 2, NULL);
        rebuild(&again);
        join_fini(&join);
        join_fini(&again);
    }
    if (welcome_read(text, len, &welcome, NULL) == 0)
        welcome_fini(&welcome);
}

static void cards(const char *text, size_t len)
{
    struct cards_body body, again;
    if (cards_read(text, len, &body, NULL) < 0)
        return;
    auto_free char *copy = cards_write(&body);
    if (!copy || cards_read(copy, strlen(copy), &again, NULL) < 0 || again.n != body.n)
        abort();
    roster_cards(&roster, &body, 3, NULL);
    cards_fini(&again);
    cards_fini(&body);
}

static void report(const char *text, size_t len)
{
    struct report_body body;
    if (report_read(text, len, &body, NULL) < 0)
        return;
    roster_report(&roster, &body, 4, NULL);
    report_body_fini(&body);
}

static void findings(const char *text, size_t len)
{
    struct findings_body body, again;
    if (findings_read(text, len, &body, NULL) < 0)
        return;
    auto_free char *copy = findings_write(&body);
    if (!copy || findings_read(copy, strlen(copy), &again, NULL) < 0 ||
        again.findings.n != body.findings.n)
        abort();
    roster_findings(&roster, &body, 5, NULL);
    if (roster.agents.list[0].findings.n > FINDINGS_MAX)
        abort();
    findings_body_fini(&again);
    findings_body_fini(&body);
}

static void answers(const char *text, size_t len)
{
    struct roster_body world;
    struct notes_body notes;
    struct printed_body printed;
    if (printed_read(text, len, &printed, NULL) == 0)
        printed_fini(&printed);
    if (roster_read(text, len, &world, NULL) == 0) {
        for (int i = 0; i < world.n; i++)
            if (world.cards[i].place < i || world.cards[i].place >= MEMBER_RANKS_MAX)
                abort();
        roster_body_fini(&world);
    }
    if (notes_read(text, len, &notes, NULL) == 0)
        notes_fini(&notes);
}

/* Requests of a user: accepted or not, the roster must stay consistent. */
static void changes(const char *text, size_t len)
{
    struct scale_body scale;
    struct drain_body drain;
    uint32_t change;
    if (scale_read(text, len, &scale, NULL) == 0)
        roster_scale(&roster, scale.np, 6, &change, NULL);
    if (drain_read(text, len, &drain, NULL) == 0 && drain.host[0])
        roster_drain_host(&roster, drain.host, 6, &change, NULL);
    else if (drain_read(text, len, &drain, NULL) == 0)
        roster_drain_rank(&roster, drain.rank, 6, &change, NULL);
    roster_tick(&roster, 7);
    auto_free char *status = status_text(&roster, 8);
    if (!status)
        abort();
}

static void config(const char *text, size_t len)
{
    struct agent_config c;
    struct saved_job saved;
    if (config_read(text, len, &c, NULL) == 0)
        config_fini(&c);
    if (saved_job_read(text, len, &saved, NULL) == 0)
        saved_job_fini(&saved);
}

static void frames(const uint8_t *data, size_t size)
{
    struct frame f;
    long n;
    while ((n = frame_get(data, size, &f)) > 0) {
        if ((size_t)n > size || f.len > size)
            abort();
        data += n;
        size -= (size_t)n;
    }
}

/* What a frame says goes into a report, is written, read and shown. */
static void sets(const uint8_t *bytes, size_t len)
{
    struct report_item item = {.type = REPORT_PROGRESS};
    if (set_report_take(bytes, len, &item.sets) < 0)
        return;
    const struct report_body body = {.agent = "a", .seq = 9, .n = 1, .items = &item};
    struct report_body again;
    auto_free char *copy = report_write(&body);
    if (!copy || report_read(copy, strlen(copy), &again, NULL) < 0)
        abort();
    const struct set_report *got = &again.items[0].sets;
    if (got->n != item.sets.n || (got->n && (got->listed != item.sets.listed ||
                                             got->communicators != item.sets.communicators ||
                                             got->gpu_memory_left != item.sets.gpu_memory_left ||
                                             got->gpu_memory != item.sets.gpu_memory)))
        abort();
    roster_report(&roster, &again, 4, NULL);
    auto_free char *status = status_text(&roster, 8);
    if (!status)
        abort();
    report_body_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    /* An exact copy, so that a sanitizer sees a read past the end. */
    size_t len = size - 1;
    char *copy = malloc(len ? len : 1);
    if (!copy)
        abort();
    memcpy(copy, data + 1, len);
    make_roster();
    switch (data[0] % 9) {
    case 0:
        join_or_welcome(copy, len);
        break;
    case 1:
        cards(copy, len);
        break;
    case 2:
        report(copy, len);
        break;
    case 3:
        answers(copy, len);
        break;
    case 4:
        config(copy, len);
        break;
    case 5:
        findings(copy, len);
        break;
    case 7:
        changes(copy, len);
        break;
    case 8:
        sets((uint8_t *)copy, len);
        break;
    default:
        frames((uint8_t *)copy, len);
    }
    roster_fini(&roster);
    free(copy);
    return 0;
}
