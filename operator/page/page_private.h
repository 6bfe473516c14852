/* SPDX-License-Identifier: Apache-2.0
 *
 * page_private: shared by the files of the page.
 */
#ifndef HVD_OPERATOR_PAGE_PAGE_PRIVATE_H
#define HVD_OPERATOR_PAGE_PAGE_PRIVATE_H

#include <jansson.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/page/page.h"

#define PAGE_JOBS_MAX     2000 /* rows; unfinished jobs come first */
#define PAGE_MEMBERS_MAX  500  /* rows; workers with problems come first */
#define PAGE_FINDINGS_MAX 200  /* failures come first */

/* page_jobs.c: appends all jobs as JSON. */
void page_put_jobs(const struct driver *d, struct buf *dst);

/* page_job.c: appends one job as JSON. plane NULL: nothing from agents. False: agents have
 * reported, but the plane's view of the job has not arrived yet. */
bool page_put_job(const struct driver *d, struct plane_mirror *plane, const struct hvdjob *job,
                  struct buf *dst);

/* page_members.c: {"total", "bad", "busy", "ok": numbers of workers, "list": [...]}; NULL: no
 * memory. view NULL: nothing from agents. */
json_t *page_members(const struct driver *d, const struct plane_view *view,
                     const struct hvdjob *job);

/* page_json.c: a JSON string of untrusted text; NULL becomes "". Cut to max bytes at a character's
 * boundary. */
json_t *page_text(const char *text, size_t max);

/* Appends j as text to dst and releases it. j NULL (no memory): sets dst->failed. */
void page_put(json_t *j, struct buf *dst);

#endif
