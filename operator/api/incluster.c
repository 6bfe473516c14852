/* SPDX-License-Identifier: Apache-2.0
 *
 * incluster: see incluster.h.
 */
#include "operator/api/incluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"

#define ACCOUNT       "var/run/secrets/kubernetes.io/serviceaccount"
#define NAMESPACE_MAX 253

static char *account_file(const char *root, const char *name)
{
    char *path;
    return asprintf(&path, "%s%s/%s", root, ACCOUNT, name) < 0 ? NULL : path;
}

bool incluster_here(const char *root)
{
    auto_free char *token = account_file(root, "token");
    return getenv("KUBERNETES_SERVICE_HOST") && token && access(token, F_OK) == 0;
}

static int read_port(long *ret, struct err *err)
{
    const char *text = getenv("KUBERNETES_SERVICE_PORT");
    char *end;
    long port = text ? strtol(text, &end, 10) : 443;
    if (text && (*end || port < 1 || port > 65535))
        return err_set(err, EINVAL, "KUBERNETES_SERVICE_PORT=%s is no port", text);
    *ret = port;
    return 0;
}

static int read_namespace(const char *root, char **ret, struct err *err)
{
    auto_free char *path = account_file(root, "namespace");
    if (!path)
        return err_set(err, ENOMEM, "no memory");
    int rc = fd_read_file(path, NAMESPACE_MAX, ret, NULL);
    if (rc < 0)
        return err_sys(err, -rc, "%s", path);
    (*ret)[strcspn(*ret, " \r\n")] = '\0';
    return 0;
}

static int fill(const char *root, struct access *a, struct err *err)
{
    long port = 0;
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    if (!host)
        return err_set(err, ENOENT,
                       "KUBERNETES_SERVICE_HOST is not set: this process does not run in a pod");
    int rc = read_port(&port, err);
    if (rc == 0)
        rc = read_namespace(root, &a->namespace, err);
    if (rc < 0)
        return rc;
    bool v6 = strchr(host, ':') && host[0] != '[';
    if (asprintf(&a->server, v6 ? "https://[%s]:%ld" : "https://%s:%ld", host, port) < 0)
        a->server = NULL;
    a->token_file = account_file(root, "token");
    a->ca_file = account_file(root, "ca.crt");
    if (!a->server || !a->token_file || !a->ca_file)
        return err_set(err, ENOMEM, "no memory");
    return access(a->ca_file, R_OK) < 0 ? err_sys(err, errno, "%s", a->ca_file) : 0;
}

int incluster_load(const char *root, struct access *ret, struct err *err)
{
    struct access a = {0};
    int rc = fill(root, &a, err);
    if (rc < 0)
        access_fini(&a);
    else
        *ret = a;
    return rc;
}
