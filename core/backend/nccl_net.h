/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_net: what NCCL has between hosts: nothing but sockets, or more (InfiniBand, RoCE, a plugin
 * of the network's). As far as environment and files of this rank tell; where they are not clear it
 * is taken to have more. Reads the environment, loads the plugin that NCCL would load.
 */
#ifndef HVD_BACKEND_NCCL_NET_H
#define HVD_BACKEND_NCCL_NET_H

#include <stdbool.h>

#define NCCL_NET_PORTS "/sys/class/infiniband"

/* ports: the folder that lists the host's devices for InfiniBand and RoCE. */
bool nccl_net_is_sockets(const char *ports);

#endif
