/* SPDX-License-Identifier: Apache-2.0
 *
 * kube_server: tests/fake/kube_api.py as a child: where it listens, and commands to it. One a
 * program. It ends with this process, whatever becomes of it.
 */
#ifndef HVD_TESTS_HARNESS_KUBE_SERVER_H
#define HVD_TESTS_HARNESS_KUBE_SERVER_H

/* With TLS when cert and key are files. Asserts on failure. The port. */
int kube_server_start(const char *cert, const char *key);

/* One command; returns what it said after "ok ", valid until the next. Asserts on failure. */
const char *kube_server_do(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* One of its counts. */
long kube_server_count(const char *name);

void kube_server_stop(void);

#endif
