/* SPDX-License-Identifier: Apache-2.0
 *
 * measure: runs all parts of the measurement in turn. See workers.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/base/cleanup.h"
#include "core/include/hvd.h"
#include "diagnostics/workers/workers.h"

/* Takes from the facts what is needed to connect to the other workers. */
static struct workers_peer *read_peers(const struct buf *facts, int size)
{
    struct workers_peer *peers = calloc((size_t)size, sizeof(*peers));
    struct answer a = {0};
    answer_parse(&a, (const char *)facts->data, facts->len);
    for (int i = 0; peers && i < size; i++) {
        char key[32];
        snprintf(key, sizeof(key), "address_%d", i);
        peers[i].port = (int)answer_int_at(&a, "worker", i, "port", 0);
        int n = answer_count(&a, key);
        for (int k = 0; k < n && k < WORKERS_IPS; k++)
            snprintf(peers[i].ips[peers[i].nips++], sizeof(peers[i].ips[0]), "%s",
                     answer_str_at(&a, key, k, "ip", ""));
    }
    answer_fini(&a);
    return peers;
}

struct measuring {
    struct machine *machine;
    const struct setting *setting;
    int rank, size;
    uint8_t token[WORKERS_TOKEN];
    workers_say_f *say;
    void *arg;
    struct buf all; /* the answer's text */
};

static void say(const struct measuring *x, const char *text)
{
    if (x->say && x->rank == 0)
        x->say(x->arg, text);
}

/* Appends the texts mine of all workers to the answer, and empties mine. */
static int share(struct measuring *x, const char *name, struct buf *mine, struct err *err)
{
    int rc = workers_gather(name, mine, &x->all, err);
    buf_reset(mine);
    return rc;
}

static int measure_paths(struct measuring *x, struct buf *mine, struct err *err)
{
    auto_free struct workers_peer *peers = read_peers(&x->all, x->size);
    if (!peers)
        return err_set(err, ENOMEM, "no memory for %d workers", x->size);
    say(x, "connecting every worker to every address of the others");
    int rc = workers_connect(peers, x->rank, x->size, x->token, mine);
    if (rc == 0)
        rc = share(x, "doctor.connect", mine, err);
    if (rc == 0) {
        say(x, "measuring pairs of workers: round trips, clocks, bandwidth");
        rc = workers_pairs(peers, x->rank, x->size, x->token, mine, err);
    }
    return rc < 0 ? rc : share(x, "doctor.pairs", mine, err);
}

static int measure(struct measuring *x, struct workers_serve *serve, struct err *err)
{
    struct buf mine = {0};
    say(x, "collecting the properties of each worker");
    int rc = workers_facts(x->machine, x->setting, x->rank, workers_serve_port(serve), &mine, err);
    workers_compute(x->rank, &mine);
    if (rc == 0)
        rc = share(x, "doctor.facts", &mine, err);
    if (rc == 0 && x->size > 1)
        rc = measure_paths(x, &mine, err);
    if (rc == 0) {
        say(x, "comparing the bits of sums on all workers");
        rc = workers_exact(x->rank, x->size, &mine, err);
    }
    if (rc == 0)
        rc = share(x, "doctor.exact", &mine, err);
    buf_fini(&mine);
    return rc;
}

static int keep(struct machine *m, const struct buf *text, struct err *err)
{
    struct machine_answer *grown = reallocarray(m->answers, m->nanswers + 1, sizeof(*m->answers));
    char *name = grown ? strdup("workers") : NULL;
    if (grown)
        m->answers = grown;
    if (!name || text->failed) {
        free(name);
        return err_set(err, ENOMEM, "no memory for the answer of the workers");
    }
    m->answers[m->nanswers] = (struct machine_answer){.probe = name};
    answer_parse(&m->answers[m->nanswers].answer, (const char *)text->data, text->len);
    m->nanswers++;
    return 0;
}

int workers_measure(struct machine *m, const struct setting *s, workers_say_f *say_, void *arg,
                    struct err *err)
{
    struct measuring x = {.machine = m,
                          .setting = s,
                          .rank = hvd_rank(),
                          .size = hvd_size(),
                          .say = say_,
                          .arg = arg};
    struct workers_serve *serve = NULL;
    if (getrandom(x.token, sizeof(x.token), 0) != sizeof(x.token))
        return err_sys(err, errno, "random bytes");
    int rc = hvd_broadcast("doctor.token", x.token, sizeof(x.token), HVD_UINT8, 0);
    if (rc < 0)
        return err_set(err, -rc, "%s", hvd_error());
    rc = workers_serve_start(&serve, x.token, err);
    if (rc == 0) {
        answer_put(&x.all, "size", "%d", x.size);
        rc = measure(&x, serve, err);
    }
    workers_serve_stop(serve);
    if (rc == 0)
        rc = keep(m, &x.all, err);
    buf_fini(&x.all);
    return rc;
}
