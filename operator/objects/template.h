/* SPDX-License-Identifier: Apache-2.0
 *
 * template: the pod template of a job, which is the user's: what of it we cannot run, said before a
 * pod is made of it. Its first container trains. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_TEMPLATE_H
#define HVD_OPERATOR_OBJECTS_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

/* Where agent, library and Python package are in a training container. The programs there name
 * their loader by this path (images/images.mk). */
#define TEMPLATE_PLACE "/hvd"
/* Volumes of ours begin so. */
#define TEMPLATE_VOLUMES "hvd-"
/* On the template: the size of /dev/shm; another image with the bundle. */
#define TEMPLATE_SHM_SIZE "hvd.dev/shm-size"
#define TEMPLATE_BUNDLE   "hvd.dev/bundle"

/* -EINVAL with the field: "spec.template.spec.containers[0].command: ...". NULL and other than a
 * mapping are fine: they are refused as having no containers. */
int template_check(json_t *template, struct err *err);

/* Bytes that /dev/shm of the training container is to have: what the annotation says, else half of
 * its memory limit, in which it counts, else TEMPLATE_SHM_DEFAULT; 0: the template mounts one of
 * its own. Of a template that was not refused. */
int64_t template_shm(json_t *template);
#define TEMPLATE_SHM_DEFAULT (INT64_C(1) << 30)

/* An annotation, NULL: it has none of that name. Borrowed. */
const char *template_annotation(json_t *template, const char *name);

#endif
