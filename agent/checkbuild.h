/* SPDX-License-Identifier: Apache-2.0
 *
 * checkbuild: prints the text of hvdrun --check-build: frameworks, controllers, tensor operations,
 * each [X] or [ ], in Horovod's layout. Only inspects the machine; bounded in time.
 */
#ifndef HVD_AGENT_CHECKBUILD_H
#define HVD_AGENT_CHECKBUILD_H

/* Writes to standard output. */
void checkbuild_print(void);

#endif
