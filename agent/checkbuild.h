/* SPDX-License-Identifier: Apache-2.0
 *
 * checkbuild: what hvdrun --check-build prints: frameworks, controllers, tensor operations, each
 * [X] or [ ], in Horovod's layout. Looks, never builds; bounded in time.
 */
#ifndef HVD_AGENT_CHECKBUILD_H
#define HVD_AGENT_CHECKBUILD_H

/* To standard output. */
void checkbuild_print(void);

#endif
