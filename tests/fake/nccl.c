/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl: a fake libnccl.so.2 that only returns its version (script.h, FAKE_NCCL), for tests of hvd-
 * probe: the old numbering, a hang, a crash, a library without that function.
 */
#include "tests/fake/script.h"

#define SCRIPT "FAKE_NCCL"

int ncclGetVersion(int *version);

/* Real libraries contain this text. hvd-probe reads it from the file, also of a library that it
 * cannot load. */
extern const char fake_nccl_text[];
const char fake_nccl_text[] = "NCCL version 2.8.4+cuda11.0";

int ncclGetVersion(int *version)
{
    *version = (int)script_number(SCRIPT, "version", 0, 2804);
    return script_enter(SCRIPT, __func__, 0);
}
