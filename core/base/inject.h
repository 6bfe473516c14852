/* SPDX-License-Identifier: Apache-2.0
 *
 * inject: named places at which a test can kill this process: HVD_TEST_FAIL=place or place:n (the
 * n-th time). Not for fast paths: each call reads the environment.
 */
#ifndef HVD_BASE_INJECT_H
#define HVD_BASE_INJECT_H

/* Sends SIGKILL to this process when the environment names this place. */
void inject_point(const char *place);

#endif
