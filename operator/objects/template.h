/* SPDX-License-Identifier: Apache-2.0
 *
 * template: validates a job's pod template, which the user wrote, before pods are made of it. Its
 * first container is the training container. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_TEMPLATE_H
#define HVD_OPERATOR_OBJECTS_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

/* Where the bundle (agent, library, Python package) is in a training container. Its programs have
 * this path of their loader built in (images/images.mk). */
#define TEMPLATE_PLACE "/hvd"
/* Prefix of the names of injected volumes. */
#define TEMPLATE_VOLUMES "hvd-"
/* Annotations of the template: the size of /dev/shm; the image with the bundle. */
#define TEMPLATE_SHM_SIZE "hvd.dev/shm-size"
#define TEMPLATE_BUNDLE   "hvd.dev/bundle"

/* -EINVAL: err begins with the field, "spec.template.spec.containers[0].command: ...". template may
 * be NULL or any JSON value: it is refused because it has no containers. */
int template_check(json_t *template, struct err *err);

/* Refuses what earlier operators accepted: for specs that no operator has accepted yet. */
int template_check_new(json_t *template, struct err *err);

/* Size of the training container's /dev/shm in bytes: the annotation, else half of the memory limit
 * (to which /dev/shm counts), else TEMPLATE_SHM_DEFAULT. 0: the template mounts its own. The
 * template must have passed template_check(). */
int64_t template_shm(json_t *template);
#define TEMPLATE_SHM_DEFAULT (INT64_C(1) << 30)

/* Adds the labels that all pods of the job have. labels: a JSON object. False: no memory. */
bool template_add_labels(json_t *labels, const char *job);

/* An annotation's value; NULL: none of that name. Borrowed. */
const char *template_annotation(json_t *template, const char *name);

#endif
