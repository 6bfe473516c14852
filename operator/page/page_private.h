/* SPDX-License-Identifier: Apache-2.0
 *
 * page_private: what the files of the page share.
 */
#ifndef HVD_OPERATOR_PAGE_PAGE_PRIVATE_H
#define HVD_OPERATOR_PAGE_PAGE_PRIVATE_H

#include <jansson.h>
#include <string.h>

#include "core/json/json.h"
#include "operator/page/page.h"

#define PAGE_JOBS_MAX     2000 /* rows; what has not ended comes first */
#define PAGE_MEMBERS_MAX  500  /* rows; who is in trouble comes first */
#define PAGE_FINDINGS_MAX 200  /* failures come first */

/* page_jobs.c: all jobs. plane NULL: none. */
void page_put_jobs(const struct driver *d, struct buf *dst);

/* page_job.c: one. */
void page_put_job(const struct driver *d, const struct plane *plane, const struct hvdjob *job,
                  struct buf *dst);

/* page_members.c: {"total": n, "list": [...]}; NULL: no memory. */
json_t *page_members(const struct driver *d, const struct plane *plane, const struct hvdjob *job);

/* page_json.c: text of the API server or of agents, NULL as "", cut to max bytes, not within a
 * letter. */
json_t *page_text(const char *text, size_t max);

/* Adds j as text to dst, and drops it; NULL: no memory. */
void page_put(json_t *j, struct buf *dst);

#endif
