/* SPDX-License-Identifier: Apache-2.0
 *
 * redact_form: secrets that are known by their form: NAME=value, "NAME": "value", the password of a
 * URL, bearer tokens and tokens with a known prefix. Pure; for redact.c alone.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_REDACT_FORM_H
#define HVD_DIAGNOSTICS_REPORT_REDACT_FORM_H

#include <stdbool.h>
#include <stddef.h>

/* How many bytes from text[i] on are a secret, by their form and by the text before them; 0:
 * none. Bytes before hidden are covered already. */
size_t form_at(const char *text, size_t len, size_t i, size_t hidden);

/* Returns whether a value is clearly not a secret, whatever its name:
 * TOKENIZERS_PARALLELISM=false, KEEP_KEYS=1. */
bool form_is_plain(const char *value, size_t len);

#endif
