/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_pieces: see shm_pieces.h. A run is a row of steps with up to three stages: in (fill the own
 * cell), mid (reduce the own slice into the own cell), out (read other seats' cells). Each stage
 * processes the steps in order, and may be ahead of the next stage as far as cells and peers allow.
 * All stages that can run do; those that free cells go first. A cell has a slice for each owner. A
 * seat does not stage its own slice: the result is written there.
 */
#include "core/coll/shm_pieces.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/coll/shm_pieces_private.h"

#define SLICE_MIN (8u << 10)
#define BLOCK     (8u << 10)

int shm_pieces_create(struct mesh *mesh, struct shm_pieces **ret, struct err *err)
{
    size_t seats = (size_t)mesh->shm->seats;
    struct shm_pieces *s = calloc(1, sizeof(*s));
    if (s) {
        s->in_walk = calloc(seats, sizeof(*s->in_walk));
        s->out_walk = calloc(seats, sizeof(*s->out_walk));
        s->src = calloc(seats, sizeof(*s->src));
    }
    if (!s || !s->in_walk || !s->out_walk || !s->src) {
        shm_pieces_destroy(s);
        return err_set(err, ENOMEM, "no memory for %zu seats", seats);
    }
    shm_steps_init(&s->steps, mesh);
    shm_choice_init(&s->choice, mesh->shm);
    s->seat = mesh->shm->seat;
    s->seats = mesh->shm->seats;
    *ret = s;
    return 0;
}

void shm_pieces_destroy(struct shm_pieces *s)
{
    if (!s)
        return;
    free(s->in_walk);
    free(s->out_walk);
    free((void *)s->src);
    free(s);
}

struct shm_steps *shm_pieces_steps(struct shm_pieces *s)
{
    return &s->steps;
}

/* ---- stages --------------------------------------------------------------------------------- */

/* Copies the next slice of a vector from the inputs to dst. */
static void copy_in(struct shm_pieces *s, struct shm_walk *walk, uint8_t *dst)
{
    struct layout_run run;
    for (size_t left = s->slice / elem(s); shm_cut_next(&s->cut, walk, left, &run);) {
        reduce_copy(dst, run.in, run.count * elem(s), s->far);
        dst += run.count * elem(s);
        left -= run.count;
    }
}

/* Copies the next slice of a vector from src to the outputs. */
static void copy_out(struct shm_pieces *s, struct shm_walk *walk, const uint8_t *src)
{
    struct layout_run run;
    for (size_t left = s->slice / elem(s); shm_cut_next(&s->cut, walk, left, &run);) {
        reduce_copy(run.out, src, run.count * elem(s), s->stream && run.out != run.in);
        src += run.count * elem(s);
        left -= run.count;
    }
}

/* Sums a run of elements: the staged inputs of all other seats, and the own input in place. */
static void reduce_run(struct shm_pieces *s, const struct layout_run *run, int owner, uint64_t step,
                       size_t at, void *dst, bool stream)
{
    for (int i = 0; i < s->seats; i++)
        s->src[i] = slice_of(s, i, owner, step) + at;
    s->src[s->seat] = run->in;
    reduce(&s->plan, dst, s->src, s->seats, run->count, NULL, s->finish, stream);
}

/* Reduces the next slice of an owner's vector into dst, or to the outputs if dst is NULL. */
static void reduce_slice(struct shm_pieces *s, struct shm_walk *walk, int owner, uint64_t step,
                         uint8_t *dst)
{
    struct layout_run run;
    size_t at = 0;
    while (shm_cut_next(&s->cut, walk, (s->slice - at) / elem(s), &run)) {
        reduce_run(s, &run, owner, step, at, dst ? dst + at : run.out, s->stream);
        at += run.count * elem(s);
    }
}

static void stage_foreign(struct shm_pieces *s, uint64_t step)
{
    for (int i = 1; i <= s->cut.owners; i++) {
        int owner = (s->seat + i) % s->cut.owners;
        if (owner != s->seat)
            copy_in(s, &s->in_walk[owner], slice_of(s, s->seat, owner, step));
    }
}

static void stage_all(struct shm_pieces *s, uint64_t step)
{
    copy_in(s, &s->in_walk[0], slice_of(s, s->seat, 0, step));
}

/* Reduces the own slice in blocks that stay in the L1 cache on their way to the cell and to the
 * own outputs. When it returns both are written; other seats read the cell. */
static void reduce_to_cell(struct shm_pieces *s, uint64_t step)
{
    _Alignas(64) uint8_t block[BLOCK];
    uint8_t *cell = slice_of(s, s->seat, s->seat, step);
    struct layout_run run;
    for (size_t at = 0, n; at < s->slice; at += n) {
        size_t most = s->slice - at < BLOCK ? s->slice - at : BLOCK;
        if (!shm_cut_next(&s->cut, &s->in_walk[s->seat], most / elem(s), &run))
            break;
        n = run.count * elem(s);
        reduce_run(s, &run, s->seat, step, at, block, false);
        reduce_copy(cell + at, block, n, s->far);
        reduce_copy(run.out, block, n, s->stream && run.out != run.in);
    }
}

static void reduce_to_work(struct shm_pieces *s, uint64_t step)
{
    uint8_t *dst = s->work ? s->work + step * s->slice : NULL;
    reduce_slice(s, &s->in_walk[s->seat], s->seat, step, dst);
    size_t done = (step + 1) * s->slice;
    s->ready = done < s->work_size ? done : s->work_size;
}

static void reduce_to_outputs(struct shm_pieces *s, uint64_t step)
{
    reduce_slice(s, &s->out_walk[0], 0, step, NULL);
}

static void spread_cells(struct shm_pieces *s, uint64_t step)
{
    for (int i = 0; i < s->cut.owners; i++) {
        int owner = (s->seat + i) % s->cut.owners;
        if (owner != s->seat || !s->run->mid) /* the stage mid has written the own slice */
            copy_out(s, &s->out_walk[owner], slice_of(s, owner, owner, step));
    }
}

static size_t work_part(const struct shm_pieces *s, uint64_t step)
{
    size_t begin = step * s->slice;
    size_t left = begin < s->work_size ? s->work_size - begin : 0;
    return left < s->slice ? left : s->slice;
}

static bool work_is_ready(const struct shm_pieces *s, uint64_t step)
{
    return s->seat >= s->cut.owners || s->ready >= step * s->slice + work_part(s, step) ||
           work_part(s, step) == 0;
}

static void stage_work(struct shm_pieces *s, uint64_t step)
{
    size_t n = work_part(s, step);
    if (n > 0)
        reduce_copy(slice_of(s, s->seat, s->seat, step), s->work + step * s->slice, n, s->far);
}

static void stage_mine(struct shm_pieces *s, uint64_t step)
{
    size_t n = gather_part(s, s->seat, step);
    if (n > 0)
        reduce_copy(slice_of(s, s->seat, 0, step), s->mine + step * s->slice, n, s->far);
}

static void take_all(struct shm_pieces *s, uint64_t step)
{
    for (int i = 0; i < s->seats; i++) {
        int from = (s->seat + i) % s->seats;
        size_t n = gather_part(s, from, step);
        uint8_t *out = s->outputs[from];
        if (n == 0 || (from == s->seat && (!out || out == s->mine)))
            continue;
        const uint8_t *src =
            from == s->seat ? s->mine + step * s->slice : slice_of(s, from, 0, step);
        reduce_copy(out + step * s->slice, src, n, s->stream);
    }
}

static const struct run_ops reduce_scatter_run = {
    .kind = SHM_ALL, .in = stage_foreign, .out = reduce_to_work, .out_needs = SHM_IN};
static const struct run_ops allgather_run = {.kind = SHM_ALL,
                                             .in = stage_work,
                                             .may_in = work_is_ready,
                                             .out = spread_cells,
                                             .out_needs = SHM_IN};
static const struct run_ops allreduce_run = {.kind = SHM_SLICES,
                                             .in = stage_foreign,
                                             .mid = reduce_to_cell,
                                             .out = spread_cells,
                                             .out_needs = SHM_RED};
static const struct run_ops symmetric_run = {
    .kind = SHM_STEPS_WHOLE, .in = stage_all, .out = reduce_to_outputs, .out_needs = SHM_IN};
static const struct run_ops gather_run = {
    .kind = SHM_ALL, .in = stage_mine, .out = take_all, .out_needs = SHM_IN};

/* ---- starts --------------------------------------------------------------------------------- */

/* Bytes of one slice: all cells in use of all seats fill at most half of the cache. */
static size_t slice_size(const struct shm_pieces *s, int owners, size_t most, size_t longest)
{
    size_t room = s->steps.cell / (size_t)owners & ~(size_t)(SHM_LINE - 1);
    size_t cache = s->steps.shm->cache_size;
    size_t fair = cache / (2 * (size_t)s->seats * s->steps.cells * (size_t)owners);
    size_t size = cache && fair < most ? fair : most;
    if (size < SLICE_MIN)
        size = SLICE_MIN;
    size = size < room ? size & ~(size_t)(SHM_LINE - 1) : room;
    /* The same number of steps, but of equal size. */
    size_t n = (longest + size - 1) / size;
    return n ? shm_line_up((longest + n - 1) / n) : size;
}

static void start(struct shm_pieces *s, const struct run_ops *run, int owners, size_t most,
                  size_t longest)
{
    shm_steps_enter(&s->steps);
    s->far = shm_choice_begin(&s->choice, s->steps.generation, longest * (size_t)owners);
    s->run = run;
    s->slice = slice_size(s, owners, most, longest);
    s->base = s->steps.given;
    s->n = (longest + s->slice - 1) / s->slice;
    s->steps.given += s->n;
    s->in = s->mid = s->out = 0;
    if (s->n > 0)
        shm_touch_staging(s->steps.shm, s->steps.cell * s->steps.cells);
    s->gives = s->takes = true;
    s->sources = s->seats;
    s->mid_watch = s->out_watch = (struct shm_watch){.need = UINT64_MAX};
    s->stream = false;
}

/* Outputs that are not inputs are written past the cache if the ranks' tensors do not fit into
 * it anyway. */
static bool leaves_cache(const struct shm_pieces *s, size_t bytes)
{
    return 2 * bytes * (size_t)s->seats > s->steps.shm->cache_size;
}

static void start_vectors(struct shm_pieces *s, const struct run_ops *run, size_t most)
{
    start(s, run, s->cut.owners, most, shm_cut_longest(&s->cut) * elem(s));
    shm_cut_walks(&s->cut, s->in_walk);
    memcpy(s->out_walk, s->in_walk, (size_t)s->cut.owners * sizeof(*s->out_walk));
}

static void start_share(struct shm_pieces *s, const struct run_ops *run,
                        const struct shm_share *share, void *work)
{
    shm_cut_shape(&s->cut, share->layout, share->first, share->stride, share->owners);
    start_vectors(s, run, SHM_SLICE_MAX);
    s->work = work;
    s->ready = s->work_size = 0;
    if (s->seat < share->owners)
        s->work_size =
            layout_piece_bytes(share->layout, share->first + (size_t)s->seat * share->stride);
}

void shm_pieces_reduce_scatter(struct shm_pieces *s, const struct shm_share *share,
                               const struct reduce_plan *plan, bool finish, void *work)
{
    start_share(s, &reduce_scatter_run, share, work);
    s->plan = *plan;
    s->finish = finish;
    s->takes = s->seat < share->owners;
}

void shm_pieces_scatter_sums(struct shm_pieces *s, const struct layout *layout,
                             const size_t *begins, const struct reduce_plan *plan, void *out)
{
    shm_cut_parts(&s->cut, layout, s->seats, begins);
    start_vectors(s, &reduce_scatter_run, SHM_SLICE_MAX);
    s->work = out;
    s->ready = 0;
    s->work_size = (begins[s->seat + 1] - begins[s->seat]) * elem(s);
    s->plan = *plan;
    s->finish = true;
    s->stream = leaves_cache(s, s->cut.total * elem(s));
}

void shm_pieces_allgather(struct shm_pieces *s, const struct shm_share *share, const void *work)
{
    start_share(s, &allgather_run, share, (void *)work);
    s->gives = s->seat < share->owners;
    s->sources = share->owners;
    s->stream = leaves_cache(s, shm_cut_longest(&s->cut) * elem(s) * (size_t)share->owners);
}

void shm_pieces_allreduce(struct shm_pieces *s, const struct layout *layout,
                          const struct reduce_plan *plan)
{
    shm_cut_flat(&s->cut, layout, s->seats);
    start_vectors(s, &allreduce_run, SHM_SLICE_MAX);
    s->plan = *plan;
    s->finish = true;
    s->stream = leaves_cache(s, s->cut.total * elem(s));
}

void shm_pieces_symmetric(struct shm_pieces *s, const struct layout *layout,
                          const struct reduce_plan *plan)
{
    shm_cut_flat(&s->cut, layout, 1);
    start_vectors(s, &symmetric_run, SHM_SLICE_MAX);
    s->plan = *plan;
    s->finish = true;
}

void shm_pieces_gather(struct shm_pieces *s, const void *mine, uint8_t *const *out,
                       const size_t *bytes)
{
    size_t longest = 0, all = 0;
    for (int i = 0; i < s->seats; i++) {
        longest = bytes[i] > longest ? bytes[i] : longest;
        all += bytes[i];
    }
    start(s, &gather_run, 1, SHM_SLICE_MAX, longest);
    s->mine = mine;
    s->outputs = out;
    s->bytes = bytes;
    s->stream = leaves_cache(s, all);
}

size_t shm_pieces_ready(const struct shm_pieces *s)
{
    return s->ready;
}

void shm_pieces_set_ready(struct shm_pieces *s, size_t bytes)
{
    s->ready = bytes;
}

void shm_pieces_cancel(struct shm_pieces *s)
{
    s->run = NULL;
}

/* ---- progress ------------------------------------------------------------------------------- */

/* Runs one stage of one step, timed if shm_choice needs the time. */
static void do_stage(struct shm_pieces *s, void (*stage)(struct shm_pieces *, uint64_t),
                     uint64_t step)
{
    uint64_t begin = shm_choice_timed(&s->choice) ? clock_ns() : 0;
    stage(s, step);
    if (s->far || s->stream)
        reduce_fence();
    if (begin)
        s->choice.spent += clock_ns() - begin;
}

static bool try_in(struct shm_pieces *s)
{
    uint64_t g = s->base + s->in;
    if (s->in == s->n || (s->run->may_in && !s->run->may_in(s, s->in)))
        return false;
    if (s->gives) {
        if (!shm_steps_room(&s->steps, g))
            return false;
        do_stage(s, s->run->in, s->in);
        shm_steps_tell(&s->steps, SHM_IN, g + 1);
    }
    s->in++;
    return true;
}

static bool try_mid(struct shm_pieces *s)
{
    uint64_t g = s->base + s->mid;
    if (!s->run->mid || s->mid == s->in ||
        !shm_steps_told(&s->steps, &s->mid_watch, SHM_IN, s->seats, g + 1))
        return false;
    do_stage(s, s->run->mid, s->mid);
    s->mid++;
    shm_steps_tell(&s->steps, SHM_RED, g + 1);
    return true;
}

static bool try_out(struct shm_pieces *s)
{
    uint64_t g = s->base + s->out;
    if (s->out == (s->run->mid ? s->mid : s->in))
        return false;
    if (s->takes) {
        if (!shm_steps_told(&s->steps, &s->out_watch, s->run->out_needs, s->sources, g + 1))
            return false;
        do_stage(s, s->run->out, s->out);
    }
    s->out++;
    shm_steps_tell(&s->steps, SHM_OUT, g + 1);
    return true;
}

int shm_pieces_progress(struct shm_pieces *s)
{
    while (s->run && s->out < s->n)
        if (!try_out(s) && !try_mid(s) && !try_in(s))
            return shm_aborted(s->steps.shm) ? -ECONNRESET : 1;
    if (s->run && s->n > 0 && !shm_steps_may_return(&s->steps))
        return -ECONNRESET;
    if (s->run)
        shm_choice_end(&s->choice);
    s->run = NULL;
    return 0;
}
