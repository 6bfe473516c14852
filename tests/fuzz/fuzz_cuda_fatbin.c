/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_cuda_fatbin: the contents of a file of kernels, from any bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "core/backend/cuda_kernels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cuda_fatbin_part part;
    struct err err = {0};
    char text[64] = "";
    size_t at = 0, before = 0;
    int rc;
    while ((rc = cuda_fatbin_next(data, size, &at, &part, &err)) > 0) {
        if (at <= before || part.n > size || part.at > size - part.n || at != part.at + part.n)
            abort();
        before = at;
    }
    if ((rc < 0) != (err.code != 0))
        abort();
    if (cuda_fatbin_text(data, size, text, sizeof(text), &err) != rc ||
        strlen(text) >= sizeof(text))
        abort();
    return 0;
}
