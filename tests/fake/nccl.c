/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl: a libnccl.so.2 of ours that only says its version (script.h, FAKE_NCCL), for tests of
 * hvd-probe: old numbering, hanging, crashing, no such function in the text.
 */
#include "tests/fake/script.h"

#define SCRIPT "FAKE_NCCL"

int ncclGetVersion(int *version);

/* Real ones carry this; hvd-probe reads it where a copy does not load. */
extern const char fake_nccl_text[];
const char fake_nccl_text[] = "NCCL version 2.8.4+cuda11.0";

int ncclGetVersion(int *version)
{
    *version = (int)script_number(SCRIPT, "version", 0, 2804);
    return script_enter(SCRIPT, __func__, 0);
}
