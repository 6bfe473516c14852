/* SPDX-License-Identifier: Apache-2.0
 *
 * access: how to reach an API server: its address, the CA to trust, the client's credentials.
 * Filled in by kubeconfig.c or incluster.c, read by target.c (address, TLS) and credentials.c
 * (tokens). Plain data; every string is owned.
 */
#ifndef HVD_OPERATOR_API_ACCESS_H
#define HVD_OPERATOR_API_ACCESS_H

#include <stdbool.h>

#include "core/base/err.h"

/* A credential plugin (client.authentication.k8s.io): a program that prints credentials. */
struct access_exec {
    char *api_version;
    char **argv; /* NULL: no plugin. Run by execvp, without a shell */
    char **env;  /* NAME=VALUE, added to this process's environment */
    char *hint;  /* installHint */
    bool cluster_info;
};

/* If both a file and a text are set, the text of a certificate or key is used, but the file of a
 * token. access_load() reads none of these files. */
struct access {
    char *server; /* "https://host:port", possibly with a path; no slash at the end */
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

/* Reads the kubeconfig at path; path NULL: $KUBECONFIG (a list), else the service account of the
 * pod that this process runs in, else ~/.kube/config. context NULL: current-context. */
int access_load(const char *path, const char *context, struct access *ret, struct err *err);

/* Erases the secrets, frees all strings and zeroes *a. */
void access_fini(struct access *a);

#endif
