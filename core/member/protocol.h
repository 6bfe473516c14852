/* SPDX-License-Identifier: Apache-2.0
 *
 * protocol: converts the JSON bodies of the membership protocol to and from structs. README.md
 * lists the requests. Used by agents and coordinator; pure, any thread.
 *
 * - *_write returns a text that the caller frees, NULL when memory is exhausted. Pointers and bufs
 *   in the struct stay the caller's.
 * - *_read parses untrusted input: -EINVAL with the field in err, and ret is unchanged then. The
 *   caller passes what *_read filled to *_fini.
 */
#ifndef HVD_MEMBER_PROTOCOL_H
#define HVD_MEMBER_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/ctl.h"
#include "core/base/err.h"
#include "core/member/set_report.h"

#define MEMBER_NAME_MAX   256 /* host, job and agent names, with the NUL */
#define MEMBER_CARD_MAX   CTL_CARD_MAX
#define MEMBER_TEXT_MAX   4096 /* bytes of an error text, or of a rank's last lines */
#define MEMBER_RANKS_MAX  65536
#define MEMBER_NUMBER_MAX (1 << 24) /* members that a job may create in its life */
#define MEMBER_KEY_SIZE   32

/* POST /v1/join */
struct join_body {
    char agent[MEMBER_NAME_MAX];
    char host[MEMBER_NAME_MAX]; /* the agent's own name of its host; shown to people */
    char version[32];
    int slots; /* usable cores */
    int pid;
    /* See rejoin.h; NULL: the agent has never joined a coordinator of this job. */
    struct rejoin *rejoin;
};

/* The response to join: the members that this agent starts. In a fixed job a member's number is its
 * rank. */
struct assignment {
    int member, local_rank, cross_rank, cross_size;
};

struct welcome_body {
    char job[MEMBER_NAME_MAX];
    int size; /* size of the world; elastic: the largest */
    bool elastic;
    int slots; /* the most ranks that this agent may run at a time */
    /* True when this hvdrun did not launch the agent and so does not read its standard output. The
     * agent then sends what ranks print to POST /v1/output. */
    bool post_output;
    int nassignments;
    struct assignment *assignments;
};

/* Why a rank sent its card: the same as CTL_JOIN and so on in base/ctl.h. */
enum card_why { CARD_JOIN, CARD_REVOKED, CARD_BOUNDARY, CARD_ENTER, CARD_WHYS };

/* A rank's card, in POST /v1/cards (sent in HELLO), in a roster and in a rejoin body. */
struct card {
    int member;
    int rank;                    /* in a roster: the member's rank */
    int place;                   /* in a roster: the member's place (roster_places.h) */
    bool is_new;                 /* in a roster: the member has no training state */
    enum card_why why;           /* in cards */
    uint32_t epoch;              /* in cards: the epoch that the member was in, 0: none */
    char agent[MEMBER_NAME_MAX]; /* in a roster */
    char host[MEMBER_NAME_MAX];  /* in a roster */
    struct buf bytes;
};

struct cards_body {
    char agent[MEMBER_NAME_MAX];
    /* one higher with each body of this agent, so that a repeated body is recognized */
    uint64_t seq;
    uint32_t epoch; /* epoch of the roster that the cards are for; ignored in an elastic job */
    int n;
    struct card *cards;
};

/* Response to GET /v1/roster: every rank's card, in order of ranks. */
struct roster_body {
    uint32_t epoch;
    uint32_t change; /* the last planned change that the roster contains, 0: none */
    /* The last planned change that was announced; a rank that takes this roster knows of it. */
    uint32_t announced;
    /* The largest number of operations that any departed rank had finished. */
    uint64_t departed_done;
    uint8_t key[MEMBER_KEY_SIZE];
    bool keep_places; /* of the job */
    int n;            /* size of the world */
    struct card *cards;
};

/* Response to GET /v1/events. */
enum note_type {
    NOTE_LOST,   /* the member is lost or left early: its peers must know */
    NOTE_ENDED,  /* the member has finished */
    NOTE_SIGNAL, /* send code to every rank */
    NOTE_STOP,   /* end every rank: SIGTERM, SIGKILL after code milliseconds */
    /* Only in elastic jobs. The last four go only to the member's agent. */
    NOTE_CHANGE,  /* planned change number code waits for the next boundary */
    NOTE_START,   /* start the member, as local rank code */
    NOTE_LEAVE,   /* the world continues without the member: its agent ends it */
    NOTE_EVICT,   /* end the member at once: SIGKILL */
    NOTE_NUMBERS, /* the member is a joiner: `numbers` are its provisional numbers */
    NOTE_TYPES,
};

/* A joiner's provisional numbers: its rank, place and the sizes as if it were admitted now. */
struct rank_numbers {
    uint32_t epoch; /* the present epoch */
    int rank, size, local_size, cross_rank, cross_size, place;
};

struct note {
    enum note_type type;
    int member; /* -1: the note concerns no member */
    int code;   /* exit code, -signal; or as described at the type */
    struct rank_numbers numbers;
    char text[512];
    /* The newest epoch when the note was written. A later epoch that contains the member takes the
     * note into account: the member is fine again. */
    uint32_t epoch;
};

struct notes_body {
    uint64_t seq; /* number of the last note; the next request asks for later ones */
    int n;
    struct note *notes;
};

/* POST /v1/report: state changes of ranks, in order. */
enum report_type {
    REPORT_STARTED,
    REPORT_BYE,
    REPORT_EXITED,
    REPORT_PROGRESS,
    REPORT_DEAD,     /* the rank is known to be dead; REPORT_EXITED follows with its exit code */
    REPORT_REPAIRED, /* the rank continues in epoch, ns after it learned of a loss */
    REPORT_TYPES,
};

struct report_item {
    enum report_type type;
    int member;
    int pid;
    int code;                   /* exit code, -signal; bye: 0, or -errno: the rank cannot go on */
    char text[512];             /* why the rank could not start, or its error */
    char tail[MEMBER_TEXT_MAX]; /* last lines of the rank's stderr */
    uint64_t done;              /* bye: operations that the rank has finished */
    uint64_t batches, bytes;    /* progress */
    struct set_report sets;     /* progress */
    uint32_t epoch;             /* repaired */
    uint64_t ns;                /* repaired */
};

struct report_body {
    char agent[MEMBER_NAME_MAX];
    uint64_t seq;
    int n;
    struct report_item *items;
};

/* POST /v1/output: what ranks print, from an agent that an earlier hvdrun launched, whose pipe is
 * broken. */
#define OUTPUT_MAX (192u << 10) /* bytes of one body */

struct printed_body {
    char agent[MEMBER_NAME_MAX];
    uint64_t seq;      /* one higher with each body, so that a repeated body is recognized */
    uint64_t lost;     /* bytes that the agent had to drop before these frames */
    bool end;          /* the last body: the agent ends now */
    struct buf frames; /* agent/frames.h */
};

/* POST /v1/scale and POST /v1/drain: planned changes of an elastic job. */
struct scale_body {
    int np;
};

struct drain_body {
    int rank;                   /* -1: host is used */
    char host[MEMBER_NAME_MAX]; /* as the user named it to hvdrun; "": rank is used */
};

/* "join", "revoked", "boundary", "enter". */
const char *card_why_name(enum card_why why);

/* Copies a name or text of a body. Too long: -EINVAL with the field in err; it is never truncated.
 */
int member_copy_text(char *dst, size_t size, const char *src, const char *field, struct err *err);

char *join_write(const struct join_body *body);
int join_read(const char *text, size_t len, struct join_body *ret, struct err *err);
void join_fini(struct join_body *body); /* only for a body that join_read() filled */

char *welcome_write(const struct welcome_body *body);
int welcome_read(const char *text, size_t len, struct welcome_body *ret, struct err *err);
void welcome_fini(struct welcome_body *body);

char *cards_write(const struct cards_body *body);
int cards_read(const char *text, size_t len, struct cards_body *ret, struct err *err);
void cards_fini(struct cards_body *body);

char *roster_write(const struct roster_body *body);
int roster_read(const char *text, size_t len, struct roster_body *ret, struct err *err);
void roster_body_fini(struct roster_body *body);

char *notes_write(const struct notes_body *body);
int notes_read(const char *text, size_t len, struct notes_body *ret, struct err *err);
void notes_fini(struct notes_body *body);

char *report_write(const struct report_body *body);
int report_read(const char *text, size_t len, struct report_body *ret, struct err *err);
void report_body_fini(struct report_body *body);

/* printed.c */
char *printed_write(const struct printed_body *body);
int printed_read(const char *text, size_t len, struct printed_body *ret, struct err *err);
void printed_fini(struct printed_body *body);

int scale_read(const char *text, size_t len, struct scale_body *ret, struct err *err);

char *drain_write(const struct drain_body *body);
int drain_read(const char *text, size_t len, struct drain_body *ret, struct err *err);

#endif
