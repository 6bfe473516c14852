/* SPDX-License-Identifier: Apache-2.0
 *
 * horovod_config: the YAML file of horovodrun --config-file: sections with the values of options.
 * Any thread.
 */
#ifndef HVD_AGENT_HOROVOD_CONFIG_H
#define HVD_AGENT_HOROVOD_CONFIG_H

#include "core/base/err.h"

/* Takes a value of the file: the name of the command-line option that sets the same
 * ("--cycle-time-ms") and the value as text, which is gone when horovod_config_read() returns. at:
 * file and line, for messages. */
typedef int horovod_config_f(void *arg, const char *option, const char *value, const char *at,
                             struct err *err);

/* Hears of a section or a key that Horovod does not know, either. Returns 0. */
typedef int horovod_unknown_f(void *arg, const char *name, const char *at);

/* Reads the file and passes its values to take, in their order, except nulls. Stops at the first
 * error. -EINVAL: it is not YAML, not a mapping of mappings, or the controller is unknown. */
int horovod_config_read(const char *path, horovod_config_f *take, horovod_unknown_f *unknown,
                        void *arg, struct err *err);

#endif
