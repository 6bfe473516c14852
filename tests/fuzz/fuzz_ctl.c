/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_ctl: frames between a rank and its agent, as either end reads them. The first byte of the
 * input says how many descriptors (0 to 3) are sent with the frames. Each frame is also handled as
 * a rank handles a CTL_SHARE from its agent.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/ctl.h"
#include "core/transport/relay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mesh mesh;
static struct mesh_net net;
static bool left[3];
static struct link *links[3 * LINK_CLASSES];

/* Seat 1 of three ranks that have an agent and no segment yet. */
static struct local *begin(void)
{
    static int ranks[] = {0, 1, 2}, bells[3];
    static struct spoke spokes[3];
    static struct local l;
    l = (struct local){.ranks = ranks, .n = 3, .seat = 1, .by_agent = true, .bells = bells};
    l.spokes = spokes;
    l.watch.fd = -1;
    for (int i = 0; i < 3; i++) {
        bells[i] = spokes[i].watch.fd = -1;
        left[i] = false;
    }
    mesh = (struct mesh){.rank = 1, .size = 3, .epoch = 1, .net = &net};
    net =
        (struct mesh_net){.mesh = &mesh, .suspect = -1, .left = left, .links = links, .local = &l};
    net.agent_watch.fd = -1;
    net.epoll_fd = -1;
    return &l;
}

static void end(struct local *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->bells[i] >= 0)
            close(l->bells[i]);
    buf_fini(&l->map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int null = -1;
    int fd[2];
    struct ctl c;
    struct ctl_frame f;
    if (null < 0)
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (size < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
        return 0;
    struct local *l = begin();
    const int fds[] = {null, null, null};
    fd_send(fd[0], data + 1, size - 1, fds, data[0] % 4);
    close(fd[0]);
    ctl_init(&c, fd[1]);
    while (ctl_recv(&c, &f) == 0) {
        uint8_t *copy = malloc(f.len + 1);
        if (!copy)
            abort();
        memcpy(copy, f.body, f.len);
        f.body = copy;
        local_from_agent(&net, &f);
        free(copy);
    }
    ctl_fini(&c);
    close(fd[1]);
    end(l);
    return 0;
}
