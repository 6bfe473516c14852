/* SPDX-License-Identifier: Apache-2.0
 *
 * boot: see boot.h. This file has the order in which launchers are probed, and what all share.
 */
#include "core/boot/boot.h"

#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/known.h"
#include "core/base/lifeline.h"
#include "core/base/log.h"
#include "core/base/mac.h"

extern char **environ;

/* The most explicit source first: variables that a user sets override the launcher. Only the agent,
 * which sets the same variables, comes before them. */
static const struct boot_ops *const sources[] = {
    &boot_agent_ops,  &boot_env_ops,   &boot_torchrun_ops, &boot_pmix_ops,
    &boot_mpirun_ops, &boot_slurm_ops, &boot_torch_ops,    &boot_alone_ops,
};

int64_t boot_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !isdigit((unsigned char)*text))
        return -1;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    return errno || *end ? -1 : v;
}

/* Warns once a job: hvdrun has checked the names if there is an agent, else rank 0 does. */
static void warn_of_names(const struct boot *boot)
{
    static bool done;
    char text[256];
    if (done || boot->rank != 0 || boot->agent_fd >= 0)
        return;
    done = true;
    for (char **e = environ; *e; e++)
        if (known_misspelt(*e, text, sizeof(text)))
            log_warn("%s", text);
}

int boot_open(struct boot *boot, struct err *err)
{
    *boot = (struct boot){.agent_fd = -1, .epoch = 1};
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        int rc = sources[i]->probe(boot, err);
        if (rc == 0)
            continue;
        boot->ops = sources[i];
        if (rc < 0) {
            boot_fini(boot);
            return rc;
        }
        log_debug("boot: %s, rank %d of %d", boot->ops->name, boot->rank, boot->size);
        warn_of_names(boot);
        return 0;
    }
    return err_set(err, ENOENT, "no launcher found"); /* cannot happen: alone always accepts */
}

int boot_exchange(struct boot *boot, const struct buf *card, uint64_t deadline, struct err *err)
{
    if (card->failed || card->len > BOOT_CARD_MAX)
        return err_set(err, EMSGSIZE, "the card has %zu bytes, at most %d fit", card->len,
                       BOOT_CARD_MAX);
    boot->away = 0;
    return boot->ops->exchange(boot, card, deadline, err);
}

void boot_drop_cards(struct boot *boot)
{
    for (int r = 0; boot->cards && r < boot->size; r++)
        buf_fini(&boot->cards[r]);
    free(boot->cards);
    free(boot->local);
    free(boot->is_new);
    free(boot->starts);
    free(boot->broken);
    free(boot->members);
    free(boot->places);
    boot->cards = NULL;
    boot->local = boot->is_new = boot->starts = boot->broken = NULL;
    boot->members = NULL;
    boot->places = NULL;
}

int boot_make_cards(struct boot *boot, bool with_local, struct err *err)
{
    boot_drop_cards(boot);
    size_t n = (size_t)boot->size;
    boot->cards = calloc(n, sizeof(*boot->cards));
    boot->members = calloc(n, sizeof(*boot->members));
    boot->places = calloc(n, sizeof(*boot->places));
    boot->is_new = calloc(n, sizeof(*boot->is_new));
    boot->starts = calloc(n, sizeof(*boot->starts));
    boot->broken = calloc(n, sizeof(*boot->broken));
    if (with_local)
        boot->local = calloc(n, sizeof(*boot->local));
    for (size_t i = 0; boot->members && boot->places && i < n; i++) {
        boot->members[i] = (uint32_t)i;
        boot->places[i] = (int)i;
    }
    if (boot->cards && boot->members && boot->is_new && boot->starts && boot->broken &&
        boot->places && (boot->local || !with_local))
        return 0;
    boot_drop_cards(boot);
    return err_set(err, ENOMEM, "out of memory for %d cards", boot->size);
}

void boot_heard_change(struct boot *boot, const void *body, size_t len)
{
    struct reader r = reader_over(body, len);
    uint32_t change = reader_u32(&r);
    if (!r.failed && change > boot->change_heard)
        boot->change_heard = change;
}

void boot_take_lifeline(struct boot *boot, int fd)
{
    struct err err = {0};
    if (lifeline_hold(fd, &err) < 0)
        log_warn("no lifeline: if this rank dies, the agent learns of it late: %s", err_text(&err));
    else
        boot->has_lifeline = true;
}

void boot_fini(struct boot *boot)
{
    if (boot->has_lifeline)
        lifeline_release();
    if (boot->ops && boot->ops->fini)
        boot->ops->fini(boot);
    boot_drop_cards(boot);
    if (boot->agent_fd >= 0)
        ctl_fini(&boot->ctl);
    mac_wipe(boot->key, sizeof(boot->key));
    *boot = (struct boot){.agent_fd = -1};
}

void boot_after_fork(struct boot *boot)
{
    if (boot->agent_fd >= 0)
        close(boot->agent_fd);
    boot->agent_fd = -1;
}
