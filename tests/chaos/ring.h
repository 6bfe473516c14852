/* SPDX-License-Identifier: Apache-2.0
 *
 * ring: in each step each rank sends a message to the next one, of another size each time. A
 * message that was lost, or came twice, shows as one of another step.
 */
#ifndef HVD_TESTS_CHAOS_RING_H
#define HVD_TESTS_CHAOS_RING_H

#include <stdint.h>

/* Returns 0, also if the message to or from a rank that is lost has failed; -EBADMSG: another
 * message came than the one of this step; another error of hvd_exchange() or hvd_wait(). */
int ring_pass(uint64_t step, int rank, int size);

#endif
