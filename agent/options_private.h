/* SPDX-License-Identifier: Apache-2.0
 *
 * options_private: what the files of options share: rows of the table, and parsers for numbers.
 * options.c parses the command line, options_table.c has the table and the setters, options_check.c
 * checks what depends on several options.
 */
#ifndef HVD_AGENT_OPTIONS_PRIVATE_H
#define HVD_AGENT_OPTIONS_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/options.h"

#define OPTIONS_SECONDS_MAX (365 * 86400)

typedef int option_f(struct options *o, const char *value, const char *setting, struct err *err);

/* names: the names of an option, separated by |. arg: NULL: takes no argument; in brackets: an
 * optional argument, taken only if the next word is one of those listed. setting: an argument for
 * set: the setting of set_setting, the number of set_number, the flag of set_flag. */
struct option {
    const char *names, *arg, *help;
    option_f *set;
    const char *setting;
};

const struct option *options_table(size_t *ret_n);

/* Stores the name of the variable that the option sets for the ranks; "": it sets none. */
void options_variable(const struct option *option, char *dst, size_t size);

/* An option of horovodrun that changes nothing. why: what the user is told, NULL: nothing. */
struct unused_option {
    const char *names;
    bool takes_value;
    const char *why;
};

/* The first n bytes of word name it. NULL: there is none of this name. */
const struct unused_option *options_unused(const char *word, size_t n);
void options_unused_say(const struct unused_option *option, const char *word, size_t n);

/* Parses a decimal integer in [min, max]. */
int options_int(const char *value, int min, int max, int *ret, struct err *err);

/* Parses a finite number in [min, max]. */
int options_number(const char *value, double min, double max, double *ret, struct err *err);

/* Checks a value of HVD_LOG_LEVEL. */
int options_level(const char *value, struct err *err);

#endif
