/* SPDX-License-Identifier: Apache-2.0
 *
 * shm: see shm.h. The segment has a common page, a page for each seat, pipes for every ordered pair
 * of seats, and the staging of each seat. Pages use memory only after they are touched: the file's
 * size does not show its memory.
 */
#include "core/transport/shm.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "core/base/cleanup.h"
#include "core/base/cpus.h"

#define SHM_MAGIC   0x31676573646876ULL /* "vhdseg1" */
#define SHM_VERSION 3
#define SHM_PAGE    4096
#define SHM_SEALS   (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define STAGING     (3u << 19)

/* The first page. The creator writes the fields above the abort word once. */
struct shm_head {
    uint64_t magic;
    uint32_t version, seats;
    uint64_t size, cache_size;
    uint8_t token[16];
    _Alignas(SHM_LINE) _Atomic uint32_t abort;
    _Alignas(SHM_LINE) _Atomic uint32_t attached; /* how many seats have attached */
    _Atomic uint32_t left;                        /* how many seats have left in order */
    _Alignas(SHM_LINE) _Atomic uint32_t sleeping[SHM_MAX_SEATS];
};

/* One seat's page. */
struct shm_seat {
    struct shm_flags flags;
    _Alignas(SHM_LINE) struct shm_table tables[SHM_TABLES];
    _Alignas(SHM_LINE) _Atomic uint32_t attached; /* the mask is valid */
    _Atomic uint32_t left;
    uint32_t quota;
    uint64_t cpus[CPUS_MASK_WORDS];
};

struct shm_pipe {
    _Alignas(SHM_LINE) _Atomic uint64_t written;
    _Alignas(SHM_LINE) _Atomic uint64_t read;
    _Alignas(SHM_LINE) uint8_t data[];
};

_Static_assert(sizeof(struct shm_head) <= SHM_PAGE, "head fits its page");
_Static_assert(sizeof(struct shm_seat) <= SHM_PAGE, "seat fits its page");

static size_t page_up(size_t n)
{
    return (n + SHM_PAGE - 1) & ~(size_t)(SHM_PAGE - 1);
}

/* Beyond 64 seats half the size for twice the seats: all pipes must fit into the address space. */
static size_t pipe_size(enum link_class cls, int seats)
{
    size_t size = cls == LINK_CONTROL ? 64u << 10 : 128u << 10;
    for (int limit = 64; seats > limit; limit *= 2)
        size /= 2;
    return size;
}

static size_t pipe_stride(enum link_class cls, int seats)
{
    return page_up(sizeof(struct shm_pipe) + pipe_size(cls, seats));
}

/* ---- where things are ----------------------------------------------------------------------- */

static size_t seat_offset(int seat)
{
    return SHM_PAGE * (1 + (size_t)seat);
}

static size_t pipe_offset(enum link_class cls, int seats, int from, int to)
{
    size_t pairs = (size_t)seats * (size_t)seats;
    size_t before = cls == LINK_CONTROL ? 0 : pairs * pipe_stride(LINK_CONTROL, seats);
    size_t pair = (size_t)from * (size_t)seats + (size_t)to;
    return seat_offset(seats) + before + pair * pipe_stride(cls, seats);
}

static size_t staging_offset(int seats, int seat)
{
    return pipe_offset(LINK_DATA, seats, seats, 0) + (size_t)seat * STAGING;
}

static size_t segment_size(int seats)
{
    return staging_offset(seats, seats);
}

static struct shm_head *head_of(struct shm *shm)
{
    return shm->base;
}

static struct shm_seat *seat_of(struct shm *shm, int seat)
{
    return (struct shm_seat *)((uint8_t *)shm->base + seat_offset(seat));
}

struct shm_flags *shm_flags_of(struct shm *shm, int seat)
{
    return &seat_of(shm, seat)->flags;
}

struct shm_table *shm_tables_of(struct shm *shm, int seat)
{
    return seat_of(shm, seat)->tables;
}

uint8_t *shm_staging_of(struct shm *shm, int seat)
{
    return (uint8_t *)shm->base + staging_offset(shm->seats, seat);
}

void shm_touch_staging(struct shm *shm, size_t bytes)
{
    if (bytes <= shm->touched)
        return;
    shm->touched = bytes;
#ifdef MADV_POPULATE_WRITE
    /* On an old kernel without it, pages are allocated at first use. */
    (void)madvise(shm_staging_of(shm, shm->seat), bytes, MADV_POPULATE_WRITE);
#endif
}

/* ---- life ----------------------------------------------------------------------------------- */

void shm_find_spin(struct shm *shm)
{
    uint64_t all[CPUS_MASK_WORDS] = {0};
    uint32_t quota = UINT32_MAX;
    if (shm_count_attached(shm) < shm->seats)
        return;
    for (int i = 0; i < shm->seats; i++) {
        struct shm_seat *seat = seat_of(shm, i);
        for (int w = 0; w < CPUS_MASK_WORDS; w++)
            all[w] |= seat->cpus[w];
        if (seat->quota < quota)
            quota = seat->quota;
    }
    int cpus = cpus_count(all);
    if (quota < (uint32_t)cpus)
        cpus = (int)quota;
    shm->usable_cpus = cpus < 1 ? 1 : cpus;
    shm->spin = cpus_may_spin(shm->seats, shm->usable_cpus);
}

static void take_seat(struct shm *shm)
{
    struct shm_seat *seat = seat_of(shm, shm->seat);
    uint64_t cpus[CPUS_MASK_WORDS] = {0};
    (void)cpus_affinity(cpus); /* on failure the set is empty: no spinning */
    for (int w = 0; w < CPUS_MASK_WORDS; w++)
        seat->cpus[w] = cpus[w];
    seat->quota = (uint32_t)cpus_quota("");
    atomic_store_explicit(&seat->attached, 1, memory_order_release);
    atomic_fetch_add_explicit(&head_of(shm)->attached, 1, memory_order_acq_rel);
}

int shm_count_attached(struct shm *shm)
{
    return (int)atomic_load_explicit(&head_of(shm)->attached, memory_order_acquire);
}

bool shm_has_attached(struct shm *shm, int seat)
{
    return atomic_load_explicit(&seat_of(shm, seat)->attached, memory_order_acquire) != 0;
}

static int map_segment(struct shm *shm, struct err *err)
{
    void *base = mmap(NULL, shm->size, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd, 0);
    if (base == MAP_FAILED)
        return err_sys(err, errno, "cannot map a shared segment of %zu bytes", shm->size);
    shm->base = base;
    /* A forked child must not keep the segment's memory alive. */
    if (madvise(base, shm->size, MADV_DONTFORK) < 0)
        return err_sys(err, errno, "cannot keep the shared segment from children");
    return 0;
}

static struct shm *shm_alloc(int seat, int seats, int fd)
{
    struct shm *shm = calloc(1, sizeof(*shm));
    if (!shm)
        return NULL;
    shm->seat = seat;
    shm->seats = seats;
    shm->fd = fd;
    shm->size = segment_size(seats);
    shm->staging_size = STAGING;
    for (int cls = 0; cls < LINK_CLASSES; cls++)
        shm->pipe_size[cls] = pipe_size((enum link_class)cls, seats);
    shm->doorbells = malloc((size_t)seats * sizeof(*shm->doorbells));
    if (!shm->doorbells) {
        free(shm);
        return NULL;
    }
    for (int i = 0; i < seats; i++)
        shm->doorbells[i] = -1;
    return shm;
}

void shm_destroy(struct shm *shm)
{
    if (!shm)
        return;
    if (shm->base)
        munmap(shm->base, shm->size);
    for (int i = 0; i < shm->seats; i++)
        if (shm->doorbells[i] >= 0)
            close(shm->doorbells[i]);
    if (shm->fd >= 0)
        close(shm->fd);
    free(shm->doorbells);
    free(shm);
}

/* The creator makes the doorbells of all seats. If each seat made its own, every seat would have to
 * send one to every other: n * n frames instead of a few for each seat. */
static int make_doorbells(struct shm *shm, struct err *err)
{
    for (int i = 0; i < shm->seats; i++) {
        shm->doorbells[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (shm->doorbells[i] < 0)
            return err_sys(err, errno, "cannot make a doorbell");
    }
    return 0;
}

static int check_seats(int seat, int seats, struct err *err)
{
    if (seats < 1 || seats > SHM_MAX_SEATS || seat < 0 || seat >= seats)
        return err_set(err, EINVAL, "no seat %d of %d: a host has at most %d", seat, seats,
                       SHM_MAX_SEATS);
    return 0;
}

static int fill_segment(struct shm *shm, uint8_t token[16], struct err *err)
{
    if (getrandom(token, 16, 0) != 16)
        return err_sys(err, errno, "no random token");
    if (ftruncate(shm->fd, (off_t)shm->size) < 0)
        return err_sys(err, errno, "cannot size a shared segment of %zu bytes", shm->size);
    if (fcntl(shm->fd, F_ADD_SEALS, SHM_SEALS) < 0)
        return err_sys(err, errno, "cannot seal the shared segment");
    int rc = map_segment(shm, err);
    if (rc < 0)
        return rc;
    struct shm_head *head = head_of(shm);
    head->version = SHM_VERSION;
    head->seats = (uint32_t)shm->seats;
    head->size = shm->size;
    head->cache_size = shm->cache_size = cpus_cache_size("");
    memcpy(head->token, token, 16);
    head->magic = SHM_MAGIC;
    return 0;
}

int shm_create(int seats, uint8_t token[16], struct shm **ret, struct err *err)
{
    uint8_t fresh[16];
    int rc = check_seats(0, seats, err);
    if (rc < 0)
        return rc;
    struct shm *shm = shm_alloc(0, seats, -1);
    if (!shm)
        return err_set(err, ENOMEM, "no memory for a shared segment");
    shm->fd = memfd_create("hvd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    rc = shm->fd < 0 ? err_sys(err, errno, "cannot make a shared segment") : 0;
    if (rc == 0)
        rc = fill_segment(shm, fresh, err);
    if (rc == 0)
        rc = make_doorbells(shm, err);
    if (rc < 0) {
        shm_destroy(shm);
        return rc;
    }
    take_seat(shm);
    memcpy(token, fresh, 16);
    *ret = shm;
    return 0;
}

/* The descriptor came over a socket and is untrusted. */
static int check_file(const struct shm *shm, struct err *err)
{
    struct stat st;
    int seals = fcntl(shm->fd, F_GET_SEALS);
    if (seals < 0 || (seals & SHM_SEALS) != SHM_SEALS)
        return err_set(err, EPROTO, "shared segment: not a sealed memfd");
    if (fstat(shm->fd, &st) < 0)
        return err_sys(err, errno, "shared segment");
    if ((uint64_t)st.st_size != shm->size)
        return err_set(err, EPROTO, "shared segment: %lld bytes, not %zu for %d seats",
                       (long long)st.st_size, shm->size, shm->seats);
    return 0;
}

static int check_head(struct shm *shm, const uint8_t token[16], struct err *err)
{
    const struct shm_head *head = head_of(shm);
    uint8_t differs = 0;
    if (head->magic != SHM_MAGIC || head->version != SHM_VERSION)
        return err_set(err, EPROTO, "shared segment: another version of hvd made it");
    if (head->seats != (uint32_t)shm->seats || head->size != shm->size)
        return err_set(err, EPROTO, "shared segment: made for %u seats, not %d", head->seats,
                       shm->seats);
    for (int i = 0; i < 16; i++)
        differs |= head->token[i] ^ token[i];
    if (differs)
        return err_set(err, EACCES, "shared segment: wrong token");
    shm->cache_size = head->cache_size;
    return 0;
}

int shm_attach(int fd, int seat, int seats, const uint8_t token[16], struct shm **ret,
               struct err *err)
{
    auto_close int owned = fd;
    int rc = check_seats(seat, seats, err);
    if (rc < 0)
        return rc;
    struct shm *shm = shm_alloc(seat, seats, take_fd(&owned));
    if (!shm) {
        close(fd);
        return err_set(err, ENOMEM, "no memory for a shared segment");
    }
    rc = check_file(shm, err);
    if (rc == 0)
        rc = map_segment(shm, err);
    if (rc == 0)
        rc = check_head(shm, token, err);
    if (rc < 0) {
        shm_destroy(shm);
        return rc;
    }
    close(take_fd(&shm->fd));
    take_seat(shm);
    *ret = shm;
    return 0;
}

/* ---- doorbells ------------------------------------------------------------------------------ */

void shm_set_doorbell(struct shm *shm, int seat, int eventfd)
{
    if (shm->doorbells[seat] >= 0)
        close(shm->doorbells[seat]);
    shm->doorbells[seat] = eventfd;
}

static void write_doorbell(struct shm *shm, int seat)
{
    uint64_t one = 1;
    ssize_t put;
    if (shm->doorbells[seat] < 0)
        return;
    do {
        put = write(shm->doorbells[seat], &one, sizeof(one));
    } while (put < 0 && errno == EINTR);
}

void shm_knock(struct shm *shm, int seat)
{
    write_doorbell(shm, seat);
}

void shm_leave(struct shm *shm, bool wake)
{
    atomic_store_explicit(&seat_of(shm, shm->seat)->left, 1, memory_order_release);
    uint32_t n = 1 + atomic_fetch_add_explicit(&head_of(shm)->left, 1, memory_order_acq_rel);
    for (int i = 0; i < shm->seats && (wake || n == (uint32_t)shm->seats); i++)
        write_doorbell(shm, i);
}

int shm_count_left(struct shm *shm)
{
    return (int)atomic_load_explicit(&head_of(shm)->left, memory_order_acquire);
}

bool shm_has_left(struct shm *shm, int seat)
{
    return atomic_load_explicit(&seat_of(shm, seat)->left, memory_order_acquire) != 0;
}

/* Call after a fence. The caller that clears the word writes the doorbell, so that a sleeper is
 * woken once. */
static inline void wake_if_asleep(struct shm *shm, int seat)
{
    _Atomic uint32_t *word = &head_of(shm)->sleeping[seat];
    if (__builtin_expect(atomic_load_explicit(word, memory_order_relaxed) != 0, 0) &&
        shm->doorbells[seat] >= 0 && atomic_exchange(word, 0) != 0)
        write_doorbell(shm, seat);
}

void shm_ring(struct shm *shm, int seat)
{
    atomic_thread_fence(memory_order_seq_cst);
    wake_if_asleep(shm, seat);
}

void shm_ring_all(struct shm *shm)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < shm->seats; i++)
        if (i != shm->seat)
            wake_if_asleep(shm, i);
}

void shm_ring_some(struct shm *shm, const int *seats, int n)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < n; i++)
        wake_if_asleep(shm, seats[i]);
}

/* Dekker's algorithm: the sleeper writes its word, fences, and looks for data; the publisher
 * writes data, fences, and reads the word. At least one of them sees the other. */
void shm_sleep_begin(struct shm *shm)
{
    atomic_store_explicit(&head_of(shm)->sleeping[shm->seat], 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

void shm_sleep_end(struct shm *shm)
{
    atomic_store_explicit(&head_of(shm)->sleeping[shm->seat], 0, memory_order_relaxed);
}

int shm_aborted(struct shm *shm)
{
    return (int)atomic_load_explicit(&head_of(shm)->abort, memory_order_acquire);
}

void shm_abort(struct shm *shm, int dead_seat)
{
    uint32_t none = 0;
    atomic_compare_exchange_strong(&head_of(shm)->abort, &none, 1 + (uint32_t)dead_seat);
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < shm->seats; i++)
        write_doorbell(shm, i);
}

/* ---- pipes ---------------------------------------------------------------------------------- */

static struct shm_pipe *pipe_of(struct shm *shm, enum link_class cls, int from, int to)
{
    return (struct shm_pipe *)((uint8_t *)shm->base + pipe_offset(cls, shm->seats, from, to));
}

size_t shm_pipe_write(struct shm *shm, enum link_class cls, int to, const void *src, size_t n)
{
    struct shm_pipe *pipe = pipe_of(shm, cls, shm->seat, to);
    size_t size = shm->pipe_size[cls];
    uint64_t at = atomic_load_explicit(&pipe->written, memory_order_relaxed);
    uint64_t used = at - atomic_load_explicit(&pipe->read, memory_order_acquire);
    if (used >= size)
        return 0;
    if (n > size - used)
        n = size - (size_t)used;
    size_t start = (size_t)(at & (size - 1));
    size_t first = n < size - start ? n : size - start;
    memcpy(pipe->data + start, src, first);
    memcpy(pipe->data, (const uint8_t *)src + first, n - first);
    atomic_store_explicit(&pipe->written, at + n, memory_order_release);
    return n;
}

size_t shm_pipe_read(struct shm *shm, enum link_class cls, int from, void *dst, size_t n)
{
    struct shm_pipe *pipe = pipe_of(shm, cls, from, shm->seat);
    size_t size = shm->pipe_size[cls];
    uint64_t at = atomic_load_explicit(&pipe->read, memory_order_relaxed);
    uint64_t ready = atomic_load_explicit(&pipe->written, memory_order_acquire) - at;
    if (ready == 0 || ready > size) /* a damaged counter must not make us read past the pipe */
        return 0;
    if (n > ready)
        n = (size_t)ready;
    size_t start = (size_t)(at & (size - 1));
    size_t first = n < size - start ? n : size - start;
    memcpy(dst, pipe->data + start, first);
    memcpy((uint8_t *)dst + first, pipe->data, n - first);
    atomic_store_explicit(&pipe->read, at + n, memory_order_release);
    return n;
}
