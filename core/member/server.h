/* SPDX-License-Identifier: Apache-2.0
 *
 * server: the HTTP server of a coordinator (libmicrohttpd) on the owner's loop, one thread.
 *
 * It checks the token, collects bodies and parks long polls. The handler (service.c) decides what a
 * request means. A server listens on a Unix socket, or on one TCP address with TLS; several servers
 * may share a handler.
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
    const char *agent; /* value of ?agent=; "": absent */
    uint64_t after;    /* value of ?after=; 0: absent */
    const char *body;  /* NUL-terminated */
    size_t len;
    bool last; /* the long poll's wait is over: the handler must answer now */
    /* Set by a handler that forwards requests (the operator's plane): the agent's name must begin
     * with "PEER."; NULL: any name. */
    const char *peer;
};

struct server_reply {
    int status;
    char *body;     /* JSON, malloc'd; NULL: none. The server frees it. */
    uint64_t group; /* group of a parked request, see server_wake_some() */
    int who;        /* the parked request's number within its group; > 0 */
};

/* Handles a request. Returns 0 when ret_reply is filled, or 1 when there is nothing to report yet:
 * park the request (only for GET with ?wait=). */
typedef int server_handle_f(void *arg, const struct server_request *request,
                            struct server_reply *ret_reply);

/* For whom a request is made: limits apply to pods and to namespaces. */
struct server_client {
    char pod[64], namespace_[64]; /* pod: never "" */
};

/* Decides whether a request is allowed. Called when its headers are complete, before any of its
 * body is read. token: the text after "Authorization: Bearer ", "" without. Returns 0, or with a
 * reason in err: -EACCES (401), -EPERM (403), -ENOENT (404), -EAGAIN (503: not known yet).
 * *ret_client: set if it is allowed. */
typedef int server_admit_f(void *arg, const struct server_request *request, const char *token,
                           struct server_client *ret_client, struct err *err);

struct server_config {
    struct loop *loop;
    const char *token;     /* the expected text after "Authorization: Bearer "; or: */
    server_admit_f *admit; /* the limits below are for this */
    server_handle_f *handle;
    void *arg;
    const char *unix_path; /* created with mode 0600; or: */
    const char *address;   /* numeric, with TLS; port 0 chooses one */
    int port;
    const char *cert_pem, *key_pem; /* the certificate chain and its key; with address */
    /* The peer has closed the connection of a parked request with this group and ?agent=: the agent
     * is lost, or will ask again. Called on the loop. NULL: not needed. */
    void (*closed)(void *arg, uint64_t group, const char *agent);
    size_t body_max;      /* 0: SERVER_BODY_MAX */
    size_t bodies_max;    /* bytes of all requests in flight, divided among clients (503) */
    unsigned memory;      /* bytes per connection; 0: libmicrohttpd's default of 32 KiB */
    unsigned connections; /* 0: libmicrohttpd's default, about a thousand */
    int handshakes;       /* with address: the most pending TLS handshakes; 0: no limit, also of
                             connections (connection_limit.h) */
};

int server_open(struct server **ret, const struct server_config *config, struct err *err);

/* Uses another certificate for new connections. Open ones stay. -EINVAL. */
int server_use_certificate(struct server *s, const char *cert_pem, const char *key_pem,
                           struct err *err);

/* Returns the port that s listens on; 0 for a Unix socket. */
int server_port(const struct server *s);

/* Number of requests that were not allowed (401, 403 or 404, see server_admit_f). */
uint64_t server_refused(const struct server *s);

/* Number of requests whose body was too long, or not complete within 10 s. */
uint64_t server_refused_bodies(const struct server *s);

/* Called after a change: handles every parked request again. */
void server_wake(struct server *s);

/* connection_limit_behind(): true while clients wait for the TLS handshakes of others. */
bool server_is_behind(const struct server *s);

/* Number of requests parked so far. */
uint64_t server_parks(const struct server *s);

/* Like server_wake(), but only for at most max requests of a group (who 0: all of the group) that
 * were parked when server_parks() returned `before`. Returns true when more such requests are
 * parked. */
bool server_wake_some(struct server *s, uint64_t group, int who, uint64_t before, int max);

/* Answers parked requests with 503 and removes the Unix socket. NULL is allowed. */
void server_close(struct server *s);

#endif
