/* SPDX-License-Identifier: Apache-2.0
 *
 * inject: named places at which a test may have this process killed: HVD_TEST_FAIL=place or
 * place:n (at the n-th time). Only where nothing is fast: each call looks at the environment.
 */
#ifndef HVD_BASE_INJECT_H
#define HVD_BASE_INJECT_H

/* SIGKILL to this process when the environment names this place. */
void inject_point(const char *place);

#endif
