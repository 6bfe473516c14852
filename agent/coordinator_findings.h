/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_findings: tells the user what the agents' doctors found, and what the ranks' output
 * shows about a failure.
 *
 * A failure is printed when it arrives, a warning only with -v. After a rank has failed, the
 * findings of its host are printed.
 */
#ifndef HVD_AGENT_COORDINATOR_FINDINGS_H
#define HVD_AGENT_COORDINATOR_FINDINGS_H

#include "agent/coordinator_core.h"

/* Prints new findings of the agents' doctors. */
void coordinator_say_findings(struct coordinator_core *c);

/* Prints the likely cause of the failure, if the ranks' output shows one. */
void coordinator_say_cause(struct coordinator_core *c);

/* Prints the findings of the host of a failed rank. */
void coordinator_say_host(struct coordinator_core *c, int rank);

#endif
