/* SPDX-License-Identifier: Apache-2.0
 *
 * expand: $(NAME) in a container's command, args and env, as Kubernetes documents it. Pure;
 * jobfile.c calls it.
 */
#ifndef HVD_AGENT_EXPAND_H
#define HVD_AGENT_EXPAND_H

/* A fresh text in which each $(NAME) is the value NAME has in env (a NULL-ended list of NAME=VALUE,
 * or NULL). One that env lacks stays as it is, $$ becomes $, any other $ is itself. NULL: no
 * memory. */
char *expand(const char *text, char *const *env);

#endif
