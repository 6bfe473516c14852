/* SPDX-License-Identifier: Apache-2.0
 *
 * protocol: the JSON bodies of the membership protocol, to and from structs. README.md has the
 * requests. Both ends use it; pure, any thread.
 *
 * *_write returns a fresh text (free() it), NULL when memory is out. *_read parses foreign bytes:
 * -EINVAL with the field in err, and ret is untouched then. What *_read filled goes to *_fini. For
 * *_write the pointers and bufs are the caller's.
 */
#ifndef HVD_MEMBER_PROTOCOL_H
#define HVD_MEMBER_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define MEMBER_NAME_MAX   256  /* host, job and agent names, with the NUL */
#define MEMBER_CARD_MAX   4096 /* bytes of a rank's card */
#define MEMBER_TEXT_MAX   4096 /* bytes of an error text or of last lines */
#define MEMBER_RANKS_MAX  65536
#define MEMBER_NUMBER_MAX (1 << 24) /* members that a job may have had in its life */
#define MEMBER_KEY_SIZE   32

/* POST /v1/join */
struct join_body {
    char agent[MEMBER_NAME_MAX];
    char host[MEMBER_NAME_MAX]; /* as the agent sees itself; for people */
    char version[32];
    int slots; /* usable cores */
    int pid;
    struct rejoin *rejoin; /* rejoin.h; NULL: it has never joined a coordinator of this job */
};

/* Its answer: which members this agent starts. A member is a rank process with a number that is
 * never used again; in a fixed job it is the rank. */
struct seat {
    int member, local_rank, cross_rank, cross_size;
};

struct welcome_body {
    char job[MEMBER_NAME_MAX];
    int size; /* of the world; of an elastic job: the largest */
    bool elastic;
    int slots; /* ranks there may be at a time on this agent */
    /* This hvdrun did not launch the agent: nobody reads the agent's standard output. What ranks
     * print goes to POST /v1/output. */
    bool post_output;
    int nseats;
    struct seat *seats;
};

/* Why a rank gave its card: as CTL_JOIN and so on, of base/ctl.h. */
enum card_why { CARD_JOIN, CARD_REVOKED, CARD_BOUNDARY, CARD_ENTER, CARD_WHYS };

/* POST /v1/cards: what ranks said in HELLO. seq: rises with every cards and report of this agent,
 * so that a repeated one is known. */
struct card {
    int member;
    int rank;                    /* in a roster: its place */
    bool is_new;                 /* in a roster: it was in no epoch before */
    enum card_why why;           /* in cards */
    uint32_t epoch;              /* in cards: that it was in, 0: none */
    char agent[MEMBER_NAME_MAX]; /* in a roster */
    char host[MEMBER_NAME_MAX];  /* in a roster */
    struct buf bytes;
};

struct cards_body {
    char agent[MEMBER_NAME_MAX];
    uint64_t seq;
    uint32_t epoch; /* of the roster they are for; an elastic job takes any */
    int n;
    struct card *cards;
};

/* Answer of GET /v1/roster: every rank's card, in order. */
struct roster_body {
    uint32_t epoch;
    uint32_t change;    /* the last planned change that is in it, 0: none */
    uint32_t announced; /* the last one that is known: whoever takes this roster knows it, too */
    uint64_t left_done; /* operations that one who had left had finished: the most of all */
    uint8_t key[MEMBER_KEY_SIZE];
    int n; /* size of the world */
    struct card *cards;
};

/* Answer of GET /v1/events. */
enum note_type {
    NOTE_LOST,   /* the member died or left early: whoever works with it must know */
    NOTE_ENDED,  /* the member ended as it should */
    NOTE_SIGNAL, /* send code to every rank */
    NOTE_STOP,   /* end every rank: SIGTERM, SIGKILL after code milliseconds */
    /* Elastic jobs. The last four are for the agent that has the member. */
    NOTE_CHANGE, /* planned change number code waits for the next boundary */
    NOTE_START,  /* start the member, as local rank code */
    NOTE_LEAVE,  /* the world goes on without the member: it is to end */
    NOTE_EVICT,  /* end the member at once: SIGKILL */
    NOTE_PLACE,  /* the member is in no world yet: place is where it would be */
    NOTE_TYPES,
};

/* Of a member that would come in now. */
struct place {
    uint32_t epoch; /* of the world it would come into */
    int rank, size, local_size, cross_rank, cross_size;
};

struct note {
    enum note_type type;
    int member; /* -1 where there is none */
    int code;   /* exit code, -signal; or as above */
    struct place place;
    char text[512];
    /* The last one that was published when it was noted. A later one with the member in it knows of
     * the note, and the member is well again. */
    uint32_t epoch;
};

struct notes_body {
    uint64_t seq; /* ask for what comes after this */
    int n;
    struct note *notes;
};

/* POST /v1/report: what became of ranks, in order. */
enum report_type {
    REPORT_STARTED,
    REPORT_BYE,
    REPORT_EXITED,
    REPORT_PROGRESS,
    REPORT_DEAD,     /* it is known to be dead; what it left by is told by exited, later */
    REPORT_REPAIRED, /* it works on in epoch, ns after it heard of a loss */
    REPORT_TYPES,
};

struct report_item {
    enum report_type type;
    int member;
    int pid;
    int code;                   /* exit code, -signal; of bye: 0 or -errno, it cannot go on */
    char text[512];             /* why it could not start, or what it is doing */
    char tail[MEMBER_TEXT_MAX]; /* last lines of its stderr */
    uint64_t done;              /* bye: operations that it had finished */
    uint64_t batches, bytes;    /* progress */
    uint32_t epoch;             /* repaired */
    uint64_t ns;                /* repaired */
};

struct report_body {
    char agent[MEMBER_NAME_MAX];
    uint64_t seq;
    int n;
    struct report_item *items;
};

/* POST /v1/output: what ranks print, from an agent whose pipe to hvdrun broke with it. */
#define OUTPUT_MAX (192u << 10) /* bytes of one body */

struct printed_body {
    char agent[MEMBER_NAME_MAX];
    uint64_t seq;      /* one higher each time: a repeated one is known */
    uint64_t lost;     /* bytes that could not be kept before these */
    bool end;          /* all is said, the agent ends now */
    struct buf frames; /* agent/frames.h */
};

/* POST /v1/scale and /v1/drain: planned changes of an elastic job. */
struct scale_body {
    int np;
};

struct drain_body {
    int rank;                   /* -1: host says it */
    char host[MEMBER_NAME_MAX]; /* as the user named it to hvdrun; "": rank says it */
};

/* "join", "revoked", "boundary". */
const char *card_why_name(enum card_why why);

/* Copies a name or text of a body; too long is -EINVAL with the field, not a cut. */
int member_copy_text(char *dst, size_t size, const char *src, const char *field, struct err *err);

char *join_write(const struct join_body *body);
int join_read(const char *text, size_t len, struct join_body *ret, struct err *err);
void join_fini(struct join_body *body); /* only of what join_read() filled */

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
