/* SPDX-License-Identifier: Apache-2.0
 *
 * options_private: what the files of options share: the table's rows, and numbers of the command
 * line. options.c walks over the words, options_table.c has the table and what each option does,
 * options_check.c what can be looked at only when all is said.
 */
#ifndef HVD_AGENT_OPTIONS_PRIVATE_H
#define HVD_AGENT_OPTIONS_PRIVATE_H

#include <stddef.h>

#include "agent/options.h"

#define OPTIONS_SECONDS_MAX (365 * 86400)

typedef int option_f(struct options *o, const char *value, const char *setting, struct err *err);

/* Names of one option with | between them. arg NULL: it takes none; in brackets: it need not have
 * one, and takes the next word only if that is one of those. setting: what set_setting sets,
 * which number set_number does, or which flag set_flag raises. */
struct option {
    const char *names, *arg, *help;
    option_f *set;
    const char *setting;
};

const struct option *options_table(size_t *ret_n);

/* A decimal integer in [min, max]. */
int options_int(const char *value, int min, int max, int *ret, struct err *err);

/* A finite number in [min, max]. */
int options_number(const char *value, double min, double max, double *ret, struct err *err);

/* One word of HVD_LOG_LEVEL. */
int options_level(const char *value, struct err *err);

#endif
