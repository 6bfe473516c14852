/* SPDX-License-Identifier: Apache-2.0
 *
 * client: sends requests to the coordinator (through core/http), on the owner's loop, one thread.
 * Over a Unix socket, or over HTTPS where only the job's CA is trusted.
 */
#ifndef HVD_MEMBER_CLIENT_H
#define HVD_MEMBER_CLIENT_H

#include <stddef.h>

#include "core/base/err.h"
#include "core/base/loop.h"

struct client;

/* The result of a request. status: the HTTP status; 0: there was no response, and text says why.
 * body is NUL-terminated and valid during the call. */
struct client_answer {
    long status;
    const char *text;
    const char *body;
    size_t len;
};

typedef void client_done_f(void *arg, const struct client_answer *answer);

struct client_config {
    struct loop *loop;
    const char *url;       /* "https://10.0.0.1:4000"; with unix_path any http://host */
    const char *unix_path; /* or NULL */
    const char *ca_pem;    /* the only CA that is trusted; NULL: the system's CAs */
    const char *token;
    /* File that the token came from, or NULL. It is read again each minute and when the token is
     * refused. */
    const char *token_file;
    /* While the coordinator has been unreachable for a second, each next request waits a random
     * time of up to this many ms, so that thousands of clients do not reconnect at once. After a
     * 503 the wait is shorter, and grows with each further one. 0: no wait. */
    int jitter_ms;
};

/* Reads a token file, without white space at its end. The caller wipes and frees *ret. */
int client_read_token(const char *path, char **ret, struct err *err);

/* Everything in config is copied. */
int client_open(struct client **ret, const struct client_config *config, struct err *err);

/* Starts a request: POST with a JSON body, GET without (NULL). Calls done once, not from within
 * this call; never after client_close(). */
int client_send(struct client *c, const char *path, const char *body, int timeout_ms,
                client_done_f *done, void *arg, struct err *err);

/* Others wait for what this client has to say: for a minute the random waits are at most 2 s, the
 * present one included. */
void client_hurry(struct client *c);

/* Drops requests in flight without calling done. NULL is allowed. */
void client_close(struct client *c);

#endif
