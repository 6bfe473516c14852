/* SPDX-License-Identifier: Apache-2.0
 *
 * hosts: see hosts.h.
 */
#include "agent/hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"

#define SLOTS_MAX 65536
#define FILE_MAX  (1u << 20)

bool host_is_local(const char *name)
{
    char own[256] = "";
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, "::1") == 0 ||
        strcmp(name, "127.0.0.1") == 0)
        return true;
    if (gethostname(own, sizeof(own) - 1) < 0 || !own[0])
        return false;
    size_t n = strcspn(own, ".");
    return strcasecmp(name, own) == 0 || (strlen(name) == n && strncasecmp(name, own, n) == 0);
}

static int add_host(struct hosts *hosts, const char *name, size_t len, int slots, struct err *err)
{
    struct host h = {.slots = slots};
    if (len == 0)
        return err_set(err, EINVAL, "a host without a name");
    if (len >= sizeof(h.name))
        return err_set(err, EINVAL, "a host name of %zu bytes", len);
    memcpy(h.name, name, len);
    /* The name becomes an argument of ssh. */
    if (h.name[0] == '-')
        return err_set(err, EINVAL, "\"%s\": a host name cannot start with -", h.name);
    bool good = !strchr("@%.", h.name[0]) && h.name[len - 1] != '@';
    for (const char *p = h.name; *p; p++)
        good &= isalnum((unsigned char)*p) || strchr("._-:%@", *p);
    if (!good)
        return err_set(err, EINVAL, "\"%s\": not a host name", h.name);
    h.local = host_is_local(h.name);
    for (int i = 0; i < hosts->n; i++) {
        struct host *known = &hosts->list[i];
        if (strcmp(known->name, h.name) == 0 || (known->local && h.local)) {
            if (slots > SLOTS_MAX - known->slots)
                return err_set(err, EINVAL, "%s: more than %d slots", h.name, SLOTS_MAX);
            known->slots += slots;
            return 0;
        }
    }
    struct host *grown = realloc(hosts->list, (size_t)(hosts->n + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for hosts");
    hosts->list = grown;
    hosts->list[hosts->n++] = h;
    return 0;
}

/* Parses a number of slots in [1, SLOTS_MAX]; the text ends at end. */
static int parse_slots(const char *text, const char *end, int *ret, struct err *err)
{
    char digits[16] = "", *stop = digits; /* a copy, because text goes on after end */
    size_t len = (size_t)(end - text);
    if (len < sizeof(digits))
        memcpy(digits, text, len);
    long n = isdigit((unsigned char)*digits) ? strtol(digits, &stop, 10) : 0;
    if (n < 1 || n > SLOTS_MAX || *stop)
        return err_set(err, EINVAL, "\"%.*s\": want a number of slots from 1 to %d",
                       (int)(end - text), text, SLOTS_MAX);
    *ret = (int)n;
    return 0;
}

int hosts_add(struct hosts *hosts, const char *text, const char *end, int slots, struct err *err)
{
    const char *name = text, *name_end, *colon;
    if (*text == '[') {
        name = text + 1;
        name_end = memchr(name, ']', (size_t)(end - name));
        if (!name_end)
            return err_set(err, EINVAL, "\"%.*s\": no ] after [", (int)(end - text), text);
        colon = name_end + 1;
        if (colon != end && *colon != ':')
            return err_set(err, EINVAL, "\"%.*s\": want [address]:slots", (int)(end - text), text);
    } else {
        colon = memchr(text, ':', (size_t)(end - text));
        name_end = colon = colon ? colon : end;
    }
    int rc = colon == end ? 0 : parse_slots(colon + 1, end, &slots, err);
    return rc < 0 ? rc : add_host(hosts, name, (size_t)(name_end - name), slots, err);
}

int hosts_parse(struct hosts *hosts, const char *text, struct err *err)
{
    struct hosts fresh = {0};
    int rc = 0;
    for (const char *p = text; rc == 0; p++) {
        const char *end = p + strcspn(p, ",");
        rc = hosts_add(&fresh, p, end, 1, err);
        p = end;
        if (!*p)
            break;
    }
    if (rc < 0) {
        hosts_fini(&fresh);
        return rc;
    }
    hosts_fini(hosts);
    *hosts = fresh;
    return 0;
}

/* Parses a line without its comment: a name, and perhaps "slots=N". */
static int parse_line(struct hosts *hosts, char *line, struct err *err)
{
    char *save, *name = strtok_r(line, " \t\r", &save);
    if (!name)
        return 0;
    char *slots = strtok_r(NULL, " \t\r", &save);
    if (!slots)
        return hosts_add(hosts, name, name + strlen(name), 1, err);
    int n;
    if (strncmp(slots, "slots=", 6) != 0 || strtok_r(NULL, " \t\r", &save))
        return err_set(err, EINVAL, "want \"host slots=N\"");
    int rc = parse_slots(slots + 6, slots + strlen(slots), &n, err);
    return rc < 0 ? rc : add_host(hosts, name, strlen(name), n, err);
}

int hosts_read(struct hosts *hosts, const char *path, struct err *err)
{
    struct hosts fresh = {0};
    auto_free char *text = NULL;
    size_t len;
    int rc = fd_read_file(path, FILE_MAX, &text, &len);
    if (rc < 0)
        return err_sys(err, -rc, "host file %s", path);
    char *line = text;
    for (int number = 1; line && rc == 0; number++) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line[strcspn(line, "#")] = '\0';
        rc = parse_line(&fresh, line, err);
        if (rc < 0)
            err_prefix(err, "host file %s:%d", path, number);
        line = next;
    }
    if (rc == 0 && fresh.n == 0)
        rc = err_set(err, EINVAL, "host file %s: no host in it", path);
    if (rc < 0) {
        hosts_fini(&fresh);
        return rc;
    }
    hosts_fini(hosts);
    *hosts = fresh;
    return 0;
}

static int most_of(const struct host *h)
{
    return h->slots < HOST_RANKS_MAX ? h->slots : HOST_RANKS_MAX;
}

/* There are enough slots, but too many on one host: names the first such host. */
static int too_many(const struct hosts *hosts, int np, int room, struct err *err)
{
    int i = 0;
    while (hosts->list[i].slots <= HOST_RANKS_MAX)
        i++;
    return err_set(
        err, EINVAL,
        "%d ranks do not fit: one host runs at most %d ranks (they share its memory), and "
        "host %s was given %d slots, so that there is room for %d. Lower -np, or name "
        "more hosts (-H)",
        np, HOST_RANKS_MAX, hosts->list[i].name, hosts->list[i].slots, room);
}

static int assign(struct hosts *hosts, int np, int here, bool keep, struct err *err)
{
    int slots = 0, room = 0, kept = 0;
    if (hosts->n == 0) {
        int rc = add_host(hosts, "localhost", strlen("localhost"), here, err);
        if (rc < 0)
            return rc;
    }
    for (int i = 0; i < hosts->n; i++) {
        slots += hosts->list[i].slots;
        room += most_of(&hosts->list[i]);
        if (slots > SLOTS_MAX)
            return err_set(err, EINVAL, "more than %d slots", SLOTS_MAX);
    }
    np = np ? np : slots;
    if (np > slots)
        return err_set(err, EINVAL, "%d ranks, but the hosts have %d slots: add slots or lower -np",
                       np, slots);
    if (np > room)
        return too_many(hosts, np, room, err);
    for (int i = 0; i < hosts->n; i++) {
        struct host *h = &hosts->list[i];
        h->nranks = most_of(h) < np ? most_of(h) : np;
        np -= h->nranks;
        if (keep) /* the limit applies to joiners, too */
            h->slots = most_of(h);
        if (h->nranks > 0 || keep)
            hosts->list[kept++] = *h;
    }
    hosts->n = kept;
    return 0;
}

int hosts_assign(struct hosts *hosts, int np, struct err *err)
{
    return assign(hosts, np, np ? np : 1, false, err);
}

int hosts_assign_elastic(struct hosts *hosts, int np, int max, struct err *err)
{
    return assign(hosts, np, max, true, err);
}

int hosts_ranks(const struct hosts *hosts)
{
    int n = 0;
    for (int i = 0; i < hosts->n; i++)
        n += hosts->list[i].nranks;
    return n;
}

void hosts_fini(struct hosts *hosts)
{
    free(hosts->list);
    *hosts = (struct hosts){0};
}
