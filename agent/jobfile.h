/* SPDX-License-Identifier: Apache-2.0
 *
 * jobfile: an HvdJob manifest (YAML, as for Kubernetes) as a job on this machine.
 *
 * Read: metadata.name; spec.workers, spec.slotsPerWorker; of the first container of spec.template
 * its command, args, env (name and value) and workingDir. All else is for a cluster. A field that
 * the spec does not have is an error; spec.template, which is Kubernetes's own, may hold anything.
 */
#ifndef HVD_AGENT_JOBFILE_H
#define HVD_AGENT_JOBFILE_H

#include "agent/job.h"

/* Fills np, argv, env, cwd and name of job where they are not set. ret_ignored (size bytes): the
 * fields that have no meaning here, "image, resources"; "" when there are none. err names file,
 * line and field; job is to be thrown away then. */
int jobfile_read(struct job *job, const char *path, char *ret_ignored, size_t size,
                 struct err *err);

#endif
