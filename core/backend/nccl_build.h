/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_build: which CUDA an NCCL was built for. Its interface does not say; the file does, in the
 * text that it prints with NCCL_DEBUG=VERSION. Pure but for reading; any thread. The file is
 * foreign bytes.
 */
#ifndef HVD_BACKEND_NCCL_BUILD_H
#define HVD_BACKEND_NCCL_BUILD_H

#include <stddef.h>

/* 13000 for "NCCL version 2.27.7+cuda13.0" somewhere in the bytes; 0: it is not there. */
int nccl_build_parse(const void *bytes, size_t n);

/* Searches the read-only data of a shared object in the same way; 0: unknown, for any reason. */
int nccl_build_of(int fd);
int nccl_build_of_file(const char *path);

#endif
