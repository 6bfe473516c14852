/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_create: creates a segment and attaches to one. See shm.h.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "core/base/cleanup.h"
#include "core/base/ctl.h"
#include "core/transport/shm_private.h"

#define SHM_MAGIC   0x31676573646876ULL /* "vhdseg1" */
#define SHM_VERSION 4
#define SHM_SEALS   (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

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
    shm->staging_size = SHM_STAGING;
    for (int i = 0; i < SHM_PIPES; i++)
        shm->pipe_size[i] = pipe_size((enum shm_pipes)i, seats);
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
    shm->fd = memfd_create(CTL_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);
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
