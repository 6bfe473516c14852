/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_nccl_build: the CUDA version that an NCCL was built for, read from a file of any bytes, and
 * from text.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/backend/nccl_api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int cuda)
{
    if (cuda != 0 && (cuda < 1000 || cuda > 999990 || cuda % 10 != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        abort();
    if (size && write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    check(nccl_build_of(path));
    check(nccl_build_parse(data, size));
    close(fd);
    return 0;
}
