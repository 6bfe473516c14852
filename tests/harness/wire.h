/* SPDX-License-Identifier: Apache-2.0
 *
 * wire: a network with a delay between network namespaces: a process that passes IP packets from
 * one namespace's TUN device to another's, each so long after it was sent. (netem would need a
 * module of the kernel.) Used by tests/harness/world.
 */
#ifndef HVD_TESTS_HARNESS_WIRE_H
#define HVD_TESTS_HARNESS_WIRE_H

#include <sys/types.h>

/* Starts the process. Namespace PREFIXh, 0 <= h < hosts, must have a TUN device eth0 with the
 * address 10.77.0.(h + 1). Returns its pid when packets flow, or -errno. It dies with the caller;
 * end it by wire_end(). */
pid_t wire_start(const char *prefix, int hosts, unsigned delay_us);
void wire_end(pid_t pid);

#endif
