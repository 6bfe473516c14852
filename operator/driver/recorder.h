/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder: the event recorder. Writes Events (events.k8s.io/v1), which kubectl describe shows. The
 * same event within ten minutes raises the count of the existing one. Nothing waits for an Event,
 * and an Event that the API server refuses is dropped: what matters is in the job's status.
 */
#ifndef HVD_OPERATOR_DRIVER_RECORDER_H
#define HVD_OPERATOR_DRIVER_RECORDER_H

#include <stdbool.h>

#include "operator/api/api.h"
#include "operator/driver/inflight.h"

struct recorder;

/* instance: reportingInstance of the Events; copied. inflight, which must outlive the recorder:
 * while other requests wait for a slot, Events wait, too, for five seconds at most. NULL: they do
 * not. */
int recorder_open(struct recorder **ret, struct api *api, const struct inflight *inflight,
                  const char *instance, struct err *err);

/* The object that an Event is about. */
struct recorder_about {
    const char *api, *kind, *namespace, *name, *uid;
};

/* note: cut after 1,024 bytes. */
void recorder_event(struct recorder *s, const struct recorder_about *about, bool warning,
                    const char *reason, const char *note);

/* Drops all Events that wait or are in flight. */
void recorder_stop(struct recorder *s);

/* NULL is fine. */
void recorder_close(struct recorder *s);

#endif
