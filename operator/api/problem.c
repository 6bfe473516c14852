/* SPDX-License-Identifier: Apache-2.0
 *
 * problem: see problem.h.
 */
#include "operator/api/problem.h"

#include <stdio.h>

void problem_note(struct problem *p, const struct api_answer *answer, const struct err *err)
{
    p->status = answer->status;
    if (err->code != 0)
        snprintf(p->text, sizeof(p->text), "%.500s", err->msg);
    else if (answer->status == 0)
        snprintf(p->text, sizeof(p->text), "%.500s",
                 *answer->message ? answer->message : "no response");
    else
        snprintf(p->text, sizeof(p->text), "%ld %.480s", answer->status, answer->message);
}
