/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_exchange: see shm_exchange.h. Seats have different numbers of parts. A run has as many steps
 * as the largest number, so that step numbers stay equal on all seats. A seat that has staged or
 * copied its last part publishes the number of the last step.
 *
 * A seat may finish before another one has read its table, if it could stage all its parts without
 * waiting for that seat. But no seat finishes the next exchange before all have begun it. So two
 * tables are used alternately, and a stamp identifies the exchange.
 */
#include "core/coll/shm_exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/coll/reduce.h"

#define USE_MIN (64u << 10)  /* least bytes of a cell that are worth publishing */
#define USE_MAX (128u << 10) /* so that the data in flight stays in a core's own cache */
#define DEPTH   8            /* parts that a row is cut into, if it is long enough */
/* bytes of the own row that are copied between two checks of the other seats */
#define OWN_CHUNK  (256u << 10)
#define STREAM_MIN (1u << 20) /* outputs of at least this size are written past the cache */

/* The row that is sent to one other seat, or that is received from it. */
struct row {
    size_t at, bytes; /* offset and length in the user's memory */
    size_t place;     /* offset of the row's part in the cell */
    size_t slice;     /* bytes of every part but the last */
    uint64_t steps;   /* number of parts; 0: the row is empty */
    uint64_t taken;   /* a received row: parts copied out */
};

struct shm_exchange {
    struct shm_steps *steps;
    int seat, seats;
    struct row *to, *from; /* [seats]; the own entries have no parts */
    int *receivers, *sources;
    int nreceivers, nsources; /* number of non-empty rows */
    bool running;
    int turn; /* index of the next table; a cancelled run does not count */
    const uint8_t *in;
    uint8_t *out;
    size_t own, own_done; /* bytes of the own row */
    uint64_t base;        /* number of the run's first step */
    uint64_t mine, all;   /* mine: steps of this seat; all: steps of the run, 0: not known yet */
    uint64_t filled;      /* own parts that are staged */
    uint64_t told_out;
    bool stream; /* the output leaves the cache */
    struct shm_watch learn, end;
};

int shm_exchange_create(struct shm_steps *steps, struct shm_exchange **ret, struct err *err)
{
    size_t seats = (size_t)steps->shm->seats;
    struct shm_exchange *x = calloc(1, sizeof(*x));
    if (x) {
        x->to = calloc(2 * seats, sizeof(*x->to));
        x->receivers = calloc(2 * seats, sizeof(*x->receivers));
    }
    if (!x || !x->to || !x->receivers) {
        shm_exchange_destroy(x);
        return err_set(err, ENOMEM, "no memory for %zu seats", seats);
    }
    x->from = x->to + seats;
    x->sources = x->receivers + seats;
    x->steps = steps;
    x->seat = steps->shm->seat;
    x->seats = steps->shm->seats;
    *ret = x;
    return 0;
}

void shm_exchange_destroy(struct shm_exchange *x)
{
    if (!x)
        return;
    free(x->to);
    free(x->receivers);
    free(x);
}

/* ---- the cut -------------------------------------------------------------------------------- */

static void cut_row(struct row *row, uint64_t steps)
{
    row->steps = row->bytes ? steps : 0;
    row->slice = row->bytes ? shm_line_up((row->bytes + steps - 1) / steps) : 0;
}

static size_t part_bytes(const struct row *row, uint64_t step)
{
    size_t begin = step * row->slice;
    size_t left = begin < row->bytes ? row->bytes - begin : 0;
    return left < row->slice ? left : row->slice;
}

/* How many bytes of a cell to use: small enough for pipelining, and so that all cells of all
 * seats fill at most half of the cache. */
static size_t cell_use(const struct shm_exchange *x, size_t total)
{
    const struct shm_steps *s = x->steps;
    size_t fair = s->shm->cache_size / (2 * (size_t)x->seats * s->cells), use = total / DEPTH;
    if (fair > 0 && use > fair)
        use = fair;
    if (use < USE_MIN)
        use = USE_MIN;
    if (use > USE_MAX)
        use = USE_MAX;
    return use < s->cell ? use : s->cell;
}

/* Cuts the rows and writes the table. Each part may waste up to a cache line. */
static void cut_rows(struct shm_exchange *x)
{
    struct shm_table *table = &shm_tables_of(x->steps->shm, x->seat)[x->turn];
    size_t total = 0, waste = (size_t)x->nreceivers * SHM_LINE, at = 0;
    for (int i = 0; i < x->nreceivers; i++)
        total += x->to[x->receivers[i]].bytes;
    size_t use = cell_use(x, total);
    if (use < 2 * waste)
        use = 2 * waste < x->steps->cell ? 2 * waste : x->steps->cell;
    x->mine = total ? (total + use - waste - 1) / (use - waste) : 1;
    atomic_store_explicit(&table->stamp, shm_stamp(x->steps->generation, x->base + 1),
                          memory_order_relaxed);
    table->steps = x->mine;
    for (int i = 0; i < x->nreceivers; i++) {
        struct row *row = &x->to[x->receivers[i]];
        cut_row(row, x->mine);
        table->place[x->receivers[i]] = (uint16_t)(at / SHM_LINE);
        row->place = at;
        at += row->slice;
    }
}

static const struct shm_table *find_table(struct shm_exchange *x, int seat)
{
    uint64_t stamp = shm_stamp(x->steps->generation, x->base + 1);
    struct shm_table *tables = shm_tables_of(x->steps->shm, seat);
    for (int i = 0; i < SHM_TABLES; i++)
        if (atomic_load_explicit(&tables[i].stamp, memory_order_relaxed) == stamp)
            return &tables[i];
    return NULL;
}

/* Reads the table of a source, which is untrusted like everything in shared memory. */
static int learn_row(struct shm_exchange *x, int seat)
{
    const struct shm_table *table = find_table(x, seat);
    struct row *row = &x->from[seat];
    uint64_t steps = table ? table->steps : 0;
    if (steps == 0 || steps > UINT32_MAX)
        return -EPROTO;
    cut_row(row, steps);
    row->place = (size_t)table->place[x->seat] * SHM_LINE;
    if (row->bytes && (row->place > x->steps->cell || row->slice > x->steps->cell - row->place))
        return -EPROTO;
    if (steps > x->all)
        x->all = steps;
    return 0;
}

/* 1: all sources have published their first part, and their tables are read. 0: not yet. */
static int learn(struct shm_exchange *x)
{
    if (x->all > 0)
        return 1;
    if (!shm_steps_told(x->steps, &x->learn, SHM_IN, x->seats, x->base + 1))
        return 0;
    for (int i = 0; i < x->seats; i++) {
        int rc = learn_row(x, i);
        if (rc < 0) {
            x->all = 0;
            return rc;
        }
    }
    return 1;
}

/* ---- start ---------------------------------------------------------------------------------- */

static void set_rows(struct shm_exchange *x, struct row *rows, const size_t *bytes, int *list,
                     int *ret_n)
{
    size_t at = 0;
    *ret_n = 0;
    for (int i = 0; i < x->seats; at += bytes[i++])
        rows[i] = (struct row){.at = at, .bytes = i == x->seat ? 0 : bytes[i]};
    /* Starts with the next seat, so that not all seats begin with the same one. */
    for (int i = 1; i < x->seats; i++) {
        int seat = (x->seat + i) % x->seats;
        if (bytes[seat] > 0)
            list[(*ret_n)++] = seat;
    }
    x->own = bytes[x->seat];
}

void shm_exchange_start(struct shm_exchange *x, const void *in, const size_t *to, void *out,
                        const size_t *from)
{
    size_t sent = 0, received = 0;
    for (int i = 0; i < x->seats; i++) {
        sent += to[i];
        received += from[i];
    }
    shm_steps_enter(x->steps);
    set_rows(x, x->to, to, x->receivers, &x->nreceivers);
    set_rows(x, x->from, from, x->sources, &x->nsources);
    x->in = in;
    x->out = out;
    x->base = x->steps->given;
    x->all = x->filled = x->told_out = 0;
    x->own_done = 0;
    x->learn = x->end = (struct shm_watch){.need = UINT64_MAX};
    x->stream =
        received > STREAM_MIN || sent + received > x->steps->shm->cache_size / (size_t)x->seats;
    x->running = true;
    if (x->nreceivers > 0)
        shm_touch_staging(x->steps->shm, x->steps->cell * x->steps->cells);
    cut_rows(x);
}

void shm_exchange_cancel(struct shm_exchange *x)
{
    x->running = false;
}

/* ---- stages --------------------------------------------------------------------------------- */

static void copy_part(struct shm_exchange *x, int seat)
{
    struct row *row = &x->from[seat];
    const uint8_t *cell = shm_steps_cell(x->steps, seat, x->base + row->taken);
    size_t n = part_bytes(row, row->taken);
    if (n > 0)
        reduce_copy(x->out + row->at + row->taken * row->slice, cell + row->place, n, x->stream);
    row->taken++;
}

/* Returns whether this seat's cell is free for its next part: the first parts use cells of
 * former runs, later ones need the receivers to be done. */
static bool has_room(struct shm_exchange *x)
{
    uint64_t g = x->base + x->filled;
    if (x->filled < x->steps->cells)
        return shm_steps_room(x->steps, g);
    for (int i = 0; i < x->nreceivers; i++)
        if (shm_steps_count(x->steps, x->receivers[i], SHM_OUT) < g + 1 - x->steps->cells)
            return false;
    return true;
}

static void tell(struct shm_exchange *x, enum shm_tell what, uint64_t step, const int *seats, int n)
{
    /* Before the number of the last step is known, this may be the last one, which all seats
     * wait for. */
    if (x->all == 0 || step == x->all)
        shm_steps_tell(x->steps, what, x->base + step);
    else
        shm_steps_tell_some(x->steps, what, x->base + step, seats, n);
}

static bool try_in(struct shm_exchange *x)
{
    if (x->filled == x->mine || !has_room(x))
        return false;
    uint8_t *cell = shm_steps_cell(x->steps, x->seat, x->base + x->filled);
    for (int i = 0; i < x->nreceivers; i++) {
        const struct row *row = &x->to[x->receivers[i]];
        size_t n = part_bytes(row, x->filled);
        if (n > 0)
            reduce_copy(cell + row->place, x->in + row->at + x->filled * row->slice, n, false);
    }
    x->filled++;
    tell(x, SHM_IN, x->filled, x->receivers, x->nreceivers);
    return true;
}

/* Copies one part from every source that has one; publishes progress when all of them have
 * advanced. */
static bool try_out(struct shm_exchange *x)
{
    uint64_t least = x->all;
    bool moved = false;
    for (int i = 0; i < x->nsources; i++) {
        struct row *row = &x->from[x->sources[i]];
        if (row->taken < row->steps &&
            shm_steps_count(x->steps, x->sources[i], SHM_IN) > x->base + row->taken) {
            copy_part(x, x->sources[i]);
            moved = true;
        }
        if (row->taken < row->steps && row->taken < least)
            least = row->taken;
    }
    if (moved && x->stream)
        reduce_fence();
    if (least > x->told_out) {
        x->told_out = least;
        tell(x, SHM_OUT, least, x->sources, x->nsources);
    }
    return moved;
}

static bool try_own(struct shm_exchange *x)
{
    size_t n = x->own - x->own_done;
    if (n == 0)
        return false;
    if (n > OWN_CHUNK)
        n = OWN_CHUNK;
    reduce_copy(x->out + x->from[x->seat].at + x->own_done, x->in + x->to[x->seat].at + x->own_done,
                n, x->stream);
    x->own_done += n;
    return true;
}

/* ---- progress ------------------------------------------------------------------------------- */

/* Returns whether this seat has finished all its steps, and all seats have staged all their
 * rows. */
static bool is_over(struct shm_exchange *x)
{
    return x->all > 0 && x->filled == x->all && x->told_out == x->all && x->own_done == x->own &&
           shm_steps_told(x->steps, &x->end, SHM_IN, x->seats, x->base + x->all);
}

/* A seat with fewer parts than others publishes the last step at once. */
static void skip_to_end(struct shm_exchange *x)
{
    if (x->filled < x->mine || x->filled == x->all)
        return;
    x->filled = x->mine = x->all;
    tell(x, SHM_IN, x->all, NULL, 0);
}

int shm_exchange_progress(struct shm_exchange *x)
{
    while (x->running) {
        int known = learn(x);
        if (known < 0)
            return known;
        bool moved = known == 1 && try_out(x);
        moved = try_in(x) || moved;
        if (known == 1)
            skip_to_end(x);
        if (moved || (known == 1 && try_own(x)))
            continue;
        if (!is_over(x))
            return shm_aborted(x->steps->shm) ? -ECONNRESET : 1;
        if (!shm_steps_may_return(x->steps))
            return -ECONNRESET;
        x->steps->given += x->all;
        x->turn = (x->turn + 1) % SHM_TABLES;
        x->running = false;
    }
    return 0;
}

/* ---- settling, after a rank was lost --------------------------------------------------------- */

uint32_t shm_exchange_final(struct shm_exchange *x)
{
    if (!x->running || learn(x) != 1)
        return 0;
    for (int i = 0; i < x->seats; i++)
        if (shm_steps_count(x->steps, i, SHM_IN) < x->base + x->all)
            return 0;
    return 1;
}

int shm_exchange_settle(struct shm_exchange *x)
{
    if (!x->running)
        return 0;
    if (learn(x) != 1)
        return -EPROTO;
    for (int i = 0; i < x->nsources; i++)
        while (x->from[x->sources[i]].taken < x->from[x->sources[i]].steps)
            copy_part(x, x->sources[i]);
    while (try_own(x))
        ;
    if (x->stream)
        reduce_fence();
    return 0;
}
