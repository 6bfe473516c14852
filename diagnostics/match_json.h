/* SPDX-License-Identifier: Apache-2.0
 *
 * match_json: what match found, for programs. Any thread.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_JSON_H
#define HVD_DIAGNOSTICS_MATCH_JSON_H

#include "core/json/json.h"
#include "diagnostics/match.h"

/* {"schema": "hvd-match/1", "verdict": "found" | "effects" | "unexplained" | "nothing", "exit",
 *  "summary", "sources", "lines", "bytes", "findings": [F], "effects": [F], "notes": [F]}
 * F: {"id", "code", "kind", "cause", "why", "fix": {"docker", "k8s", "host"},
 *     "action": as a check's, "refs": [], "source", "rank" | null, "line", "offset", "time" | null,
 * "text", "detail", "count", "ranks": [], "more_ranks"}; effects and notes leave out why, fix,
 * action, refs and detail. The caller owns the reference; NULL: no memory. */
json_t *match_json(const struct match_result *r);

#endif
