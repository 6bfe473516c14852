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
    /* Of the handler: the agent that asks is called "PEER.something"; NULL: any. */
    const char *peer;
};

struct server_reply {
    int status;
    char *body;     /* JSON, malloc'd; NULL: none. The server frees it. */
    uint64_t group; /* of a request that is parked: for server_wake_some() */
    int who;        /* in that group; > 0 */
};

/* 0: ret_reply is filled. 1: nothing to say yet, park it (GET with ?wait= only). */
typedef int server_handle_f(void *arg, const struct server_request *request,
                            struct server_reply *ret_reply);

/* May it speak? Asked when a request's headers are here, before any of its body is taken. 0, or
 * with a reason: -EACCES (401), -EPERM (403), -ENOENT (404), -EAGAIN (503: that is not known yet).
 * token is what stands behind "Authorization: Bearer ", "" without. */
typedef int server_admit_f(void *arg, const struct server_request *request, const char *token,
                           struct err *err);

struct server_config {
    struct loop *loop;
    const char *token; /* what stands behind "Authorization: Bearer "; or: */
    server_admit_f *admit;
    server_handle_f *handle;
    void *arg;
    const char *unix_path; /* made with mode 0600; or: */
    const char *address;   /* numeric, with TLS; port 0 chooses one */
    int port;
    const char *cert_pem, *key_pem; /* copied by the TLS library; with address */
    /* The connection of a parked request of this group and ?agent= was closed at the other end: it
     * died, or will ask again. From within the loop; NULL: nobody wants to know. */
    void (*closed)(void *arg, uint64_t group, const char *agent);
    size_t body_max;      /* 0: SERVER_BODY_MAX */
    size_t bodies_max;    /* of all requests under way, 503 beyond it; 0: any */
    unsigned memory;      /* of libmicrohttpd a connection; 0: its own 32 KiB */
    unsigned connections; /* 0: its own, about a thousand */
    int accepts;          /* with address: handshakes at most that are under way; 0: any */
};

int server_open(struct server **ret, const struct server_config *config, struct err *err);

/* The port it listens on; 0 for a Unix socket. */
int server_port(const struct server *s);

/* Requests refused for a wrong or missing token. */
uint64_t server_refused(const struct server *s);

/* Bodies that were too long. */
uint64_t server_too_long(const struct server *s);

/* Something changed: every parked request is handled again. */
void server_wake(struct server *s);

/* How many requests were parked so far. */
uint64_t server_parks(const struct server *s);

/* The same as server_wake() for those of a group (who 0: all of it) that were parked when
 * server_parks() was before, at most max of them: true when there are more. */
bool server_wake_some(struct server *s, uint64_t group, int who, uint64_t before, int max);

/* Answers what is parked with 503, removes the Unix socket. NULL is fine. */
void server_close(struct server *s);

#endif
