/* SPDX-License-Identifier: Apache-2.0
 *
 * pod_of: prints as JSON the pod that the operator would create for worker 0 of an HvdJob (JSON on
 * standard input). For use with a real API server.
 *
 *     pod_of [--mount]      the bundle as an image volume
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/include/hvd.h"
#include "core/json/json.h"
#include "operator/reconcile/injection.h"
#include "operator/reconcile/newpod.h"

static int print_pod(const struct hvdjob *job, bool mount)
{
    char api[64];
    struct err err = {0};
    const struct injection injection = {.url = "https://hvd-operator.hvd-system:7443",
                                        .ca = "-----BEGIN CERTIFICATE-----\n",
                                        .audience = "hvd-operator",
                                        .bundle = "localhost/hvd-bundle:" HVD_VERSION,
                                        .mount = mount};
    const struct gang_ops *gang = gang_choose(job, "", api, sizeof(api), &err);
    if (job->refused || !gang) {
        fprintf(stderr, "pod_of: %s\n", job->refused ? job->refused : err_text(&err));
        return 1;
    }
    auto_json json_t *pod = newpod(job, gang, 0, 0);
    if (!pod || injection_add(&injection, job, pod) < 0)
        return 1;
    return json_dumpf(pod, stdout, JSON_COMPACT) < 0;
}

int main(int argc, char **argv)
{

    struct hvdjob job;
    struct err err = {0};
    json_error_t wrong;
    auto_json json_t *j = json_loadf(stdin, 0, &wrong);
    if (!j || hvdjob_parse(j, &job, &err) < 0) {
        fprintf(stderr, "pod_of: %s\n", j ? err_text(&err) : wrong.text);
        return 1;
    }
    int rc = print_pod(&job, argc > 1 && strcmp(argv[1], "--mount") == 0);
    hvdjob_fini(&job);
    return rc;
}
