/* SPDX-License-Identifier: Apache-2.0
 *
 * jobfile: reads an HvdJob manifest (YAML, as for Kubernetes) as a job on this machine.
 *
 * Uses metadata.name; spec.workers, minWorkers, maxWorkers, slotsPerWorker and keepPlaces;
 * spec.doctor.policy; and of the first container of spec.template its command, args, env (name and
 * value) and workingDir. The rest is for a cluster. A field that the spec does not have is an
 * error, except in spec.template, which belongs to Kubernetes.
 */
#ifndef HVD_AGENT_JOBFILE_H
#define HVD_AGENT_JOBFILE_H

#include "agent/job.h"

/* Fills the fields of job that are not set. ret_ignored (size bytes) lists fields without a meaning
 * here, "image, resources", or is "". On failure err names file, line and field, and the caller
 * must discard job. */
int jobfile_read(struct job *job, const char *path, char *ret_ignored, size_t size,
                 struct err *err);

#endif
