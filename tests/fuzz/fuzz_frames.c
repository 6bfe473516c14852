/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_frames: messages of an authenticated but faulty peer: frames on a data link and on a control
 * link, the message that a rank is lost, the map of the hosts. The first byte chooses.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/transport/agree.h"
#include "core/transport/link_private.h"
#include "core/transport/verdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE = 4 };

/* As much of a mesh as a link needs; the epoll set is made once. */
static struct mesh mesh;
static struct mesh_net net;
static struct link *links[SIZE * LINK_CLASSES];
static bool left[SIZE];

static void begin(void)
{
    static int epoll_fd = -1;
    if (epoll_fd < 0)
        epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    memset(left, 0, sizeof(left));
    mesh = (struct mesh){.rank = 1, .size = SIZE, .generation = 3, .net = &net};
    net = (struct mesh_net){.mesh = &mesh,
                            .timer_at = 0,
                            .suspect = -1,
                            .links = links,
                            .left = left,
                            .epoll_fd = epoll_fd,
                            .wake = {.fd = -1},
                            .timer = {.fd = -1},
                            .agent_watch = {.fd = -1}};
    list_init(&net.pending);
    list_init(&net.dials);
}

static void end(void)
{
    for (int i = 0; i < SIZE * LINK_CLASSES; i++) {
        link_destroy(links[i]);
        links[i] = NULL;
    }
}

static struct link *open_link(enum link_class cls, const uint8_t *data, size_t size)
{
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) < 0)
        abort();
    ssize_t put = size ? send(fd[0], data, size, MSG_NOSIGNAL) : 0;
    (void)put;
    close(fd[0]);
    struct link *link = link_get(&net, 0, cls);
    if (!link)
        abort();
    link_established(link, fd[1]);
    return link;
}

static void data_link(const uint8_t *data, size_t size)
{
    struct xfer x;
    uint8_t got[300];
    if (size < 2)
        return;
    struct link *link = open_link(LINK_DATA, data + 2, size - 2);
    for (int i = 0; i < 20; i++) {
        xfer_start(&x, link, data[0], got, data[1] + (size_t)i);
        if (xfer_recv(&x) == 0 && x.done != x.len)
            abort();
        if (data[0] & 1)
            mesh.generation++;
        xfer_cancel_recv(&x);
    }
}

static void control_link(const uint8_t *data, size_t size)
{
    struct buf msg = {0};
    struct link *link = open_link(LINK_CONTROL, data, size);
    while (link_take(link, &msg) == 0)
        if (msg.len > LINK_MESSAGE_MAX)
            abort();
    link_post(link, "x", 1);
    buf_fini(&msg);
}

static void map(const uint8_t *data, size_t size)
{
    uint32_t host_of[SIZE] = {0};
    struct err err;
    for (size_t i = 0; i < SIZE * 2 && i < size; i++)
        host_of[i / 2] |= (uint32_t)data[i] << (i % 2 ? 28 : 0);
    if (agree_apply(&mesh, host_of, &err) == 0) {
        for (int r = 0; r < SIZE; r++)
            if (mesh_rank_at(&mesh, mesh.host_of[r], mesh.local_of[r]) != r)
                abort();
        if (mesh.lanes < 1 || mesh.local_size < 1)
            abort();
    }
    free(mesh.host_of);
    free(mesh.local_of);
    free(mesh.local_size_of);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    begin();
    if (data[0] % 4 == 0)
        data_link(copy, size - 1);
    else if (data[0] % 4 == 1)
        control_link(copy, size - 1);
    else if (data[0] % 4 == 2)
        verdict_told(&net, 2, copy, size - 1);
    else
        map(copy, size - 1);
    end();
    free(copy);
    return 0;
}
