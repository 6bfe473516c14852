/* SPDX-License-Identifier: Apache-2.0
 *
 * access: see access.h.
 */
#include "operator/api/access.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/api/incluster.h"
#include "operator/api/kubeconfig.h"

int access_load(const char *path, const char *context, struct access *ret, struct err *err)
{
    auto_free char *home = NULL;
    if (path)
        return kubeconfig_load(path, false, context, ret, err);
    const char *list = getenv("KUBECONFIG");
    if (list && *list)
        return kubeconfig_load(list, true, context, ret, err);
    if (incluster_here("/"))
        return incluster_load("/", ret, err);
    if (!getenv("HOME"))
        return err_set(err, ENOENT,
                       "no way to reach an API server: KUBECONFIG and HOME are not set, and this "
                       "is not a pod with a service account. Use --kubeconfig FILE");
    if (asprintf(&home, "%s/.kube/config", getenv("HOME")) < 0) {
        home = NULL;
        return err_set(err, ENOMEM, "no memory");
    }
    return kubeconfig_load(home, false, context, ret, err);
}

static void free_secret(char *text)
{
    if (text)
        sodium_memzero(text, strlen(text));
    free(text);
}

static void free_strings(char **list)
{
    for (char **p = list; p && *p; p++)
        free(*p);
    free(list);
}

void access_fini(struct access *a)
{
    free(a->server);
    free(a->ca_file);
    free(a->ca_pem);
    free(a->tls_server_name);
    free(a->proxy_url);
    free(a->cert_file);
    free(a->cert_pem);
    free(a->key_file);
    free_secret(a->key_pem);
    free(a->token_file);
    free_secret(a->token);
    free(a->username);
    free_secret(a->password);
    free(a->namespace);
    free(a->exec.api_version);
    free_strings(a->exec.argv);
    free_strings(a->exec.env);
    free(a->exec.hint);
    *a = (struct access){0};
}
