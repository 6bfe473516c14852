/* SPDX-License-Identifier: Apache-2.0
 *
 * checkbuild: prints the text of hvdrun --check-build: frameworks, controllers, tensor operations,
 * each [X] or [ ], in Horovod's layout. Only inspects the machine; bounded in time.
 */
#ifndef HVD_AGENT_CHECKBUILD_H
#define HVD_AGENT_CHECKBUILD_H

#include <stdbool.h>

/* Writes to standard output. horovod: with Horovod's rows, for programs that look for these. */
void checkbuild_print(bool horovod);

#endif
