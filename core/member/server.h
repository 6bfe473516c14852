/* SPDX-License-Identifier: Apache-2.0
 *
 * server: the HTTP side of a coordinator (libmicrohttpd) on the owner's loop, one thread.
 *
 * It checks the token, collects bodies, parks long polls; what a request means is the handler's
 * business (service.c). Listens on a Unix socket, or on one TCP address with TLS. A server is one
 * such listener; several may have one handler.
 */
#ifndef HVD_MEMBER_SERVER_H
#define HVD_MEMBER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/loop.h"

struct server;

#define SERVER_BODY_MAX (64u << 20)
#define SERVER_WAIT_MAX 30 /* seconds a long poll may be parked */

struct server_request {
    const char *method, *path;
    const char *agent; /* ?agent=, "" without */
    uint64_t after;    /* ?after=, 0 without */
    const char *body;  /* NUL-terminated */
    size_t len;
    bool last; /* a long poll's time is over: answer now */
};

struct server_reply {
    int status;
    char *body; /* JSON, malloc'd; NULL: none. The server frees it. */
};

/* 0: ret_reply is filled. 1: nothing to say yet, park it (GET with ?wait= only). */
typedef int server_handle_f(void *arg, const struct server_request *request,
                            struct server_reply *ret_reply);

struct server_config {
    struct loop *loop;
    const char *token; /* what stands behind "Authorization: Bearer " */
    server_handle_f *handle;
    void *arg;
    const char *unix_path; /* made with mode 0600; or: */
    const char *address;   /* numeric, with TLS; port 0 chooses one */
    int port;
    const char *cert_pem, *key_pem; /* copied by the TLS library; with address */
};

int server_open(struct server **ret, const struct server_config *config, struct err *err);

/* The port it listens on; 0 for a Unix socket. */
int server_port(const struct server *s);

/* Requests refused for a wrong or missing token. */
uint64_t server_refused(const struct server *s);

/* Something changed: every parked request is handled again. */
void server_wake(struct server *s);

/* Answers what is parked with 503, removes the Unix socket. NULL is fine. */
void server_close(struct server *s);

#endif
