/* SPDX-License-Identifier: Apache-2.0
 *
 * access: what it takes to reach an API server: where it is, whom to trust, who we are. Filled by
 * kubeconfig.c or incluster.c, read by target.c (address, TLS) and credentials.c (tokens). Plain
 * data; every string is owned.
 */
#ifndef HVD_OPERATOR_API_ACCESS_H
#define HVD_OPERATOR_API_ACCESS_H

#include <stdbool.h>

#include "core/base/err.h"

/* A program that prints credentials (client.authentication.k8s.io). */
struct access_exec {
    char *api_version;
    char **argv; /* NULL: there is none; never goes through a shell */
    char **env;  /* NAME=VALUE, besides our own environment */
    char *hint;  /* how to install it */
    bool cluster_info;
};

/* Of a pair file and text, the text wins; files are read again when they are used. */
struct access {
    char *server; /* "https://host:port", perhaps with a path; no slash at the end */
    char *ca_file, *ca_pem;
    char *tls_server_name;
    char *proxy_url;
    bool insecure;
    char *cert_file, *cert_pem, *key_file, *key_pem;
    char *token_file, *token;
    char *username, *password;
    char *namespace;
    struct access_exec exec;
};

/* From kubeconfig path, else from $KUBECONFIG (a list), else from the pod that we run in, else from
 * ~/.kube/config. context: NULL for the current one. */
int access_load(const char *path, const char *context, struct access *ret, struct err *err);

/* All zero afterwards. */
void access_fini(struct access *a);

#endif
