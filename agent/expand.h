/* SPDX-License-Identifier: Apache-2.0
 *
 * expand: $(NAME) in a container's command, args and env, as Kubernetes documents it. Pure;
 * jobfile.c calls it.
 */
#ifndef HVD_AGENT_EXPAND_H
#define HVD_AGENT_EXPAND_H

/* Returns a new text in which each $(NAME) is replaced by NAME's value in env (a NULL-terminated
 * list of NAME=VALUE, or NULL). $(NAME) stays if env has no NAME; $$ becomes $; any other $ stays.
 * NULL: no memory. */
char *expand(const char *text, char *const *env);

#endif
