/* SPDX-License-Identifier: Apache-2.0
 *
 * modify: read an object, change it, write it back; when somebody was faster (409), from the start.
 * On the api's loop. For what server-side apply cannot say.
 */
#ifndef HVD_OPERATOR_API_MODIFY_H
#define HVD_OPERATOR_API_MODIFY_H

#include "core/json/json.h"
#include "operator/api/api.h"

struct modify;

/* Changes object; called again after each conflict, with what is there then. 1: changed, write it;
 * 0: it is as it should be; negative: give up, err says why. */
typedef int modify_change_f(void *arg, json_t *object, struct err *err);

/* rc 0: it is written, or was right; -ENOENT: there is no such object; -ESTALE: too many conflicts;
 * else negative with err. */
typedef void modify_done_f(void *arg, int rc, const struct err *err);

/* path: of the object or its subresource; copied. done is called once, never from within this call.
 * ret is valid until then and may be NULL. */
int modify_start(struct api *api, const char *path, modify_change_f *change, modify_done_f *done,
                 void *arg, struct modify **ret, struct err *err);

/* done is not called; a write may be under way all the same. NULL is fine. */
void modify_cancel(struct modify *m);

#endif
