/* SPDX-License-Identifier: Apache-2.0
 *
 * fork: see fork.h.
 */
#include "core/base/fork.h"

_Thread_local bool fork_is_ours;
