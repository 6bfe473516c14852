/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_net: whether NCCL uses only sockets between hosts, or a faster transport (InfiniBand, RoCE,
 * a network plugin), judged by this rank's environment and files. If they are not clear a faster
 * transport is assumed. Reads the environment and loads the plugin that NCCL would load.
 */
#ifndef HVD_BACKEND_NCCL_NET_H
#define HVD_BACKEND_NCCL_NET_H

#include <stdbool.h>

#define NCCL_NET_PORTS "/sys/class/infiniband"

/* ports: the folder that lists the host's devices for InfiniBand and RoCE. */
bool nccl_net_is_sockets(const char *ports);

#endif
