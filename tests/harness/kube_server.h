/* SPDX-License-Identifier: Apache-2.0
 *
 * kube_server: runs tests/fake/kube_api.py as a child and sends it commands. One for each program.
 * It ends when this process ends in any way.
 */
#ifndef HVD_TESTS_HARNESS_KUBE_SERVER_H
#define HVD_TESTS_HARNESS_KUBE_SERVER_H

/* Starts it, with TLS if cert and key are files. Returns its port. Aborts this program on failure.
 */
int kube_server_start(const char *cert, const char *key);

/* Sends one command; returns the text after "ok ", valid until the next call. Aborts this program
 * on failure. */
const char *kube_server_do(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Returns one of its counters. */
long kube_server_count(const char *name);

void kube_server_stop(void);

#endif
