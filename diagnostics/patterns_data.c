/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns_data: see patterns_data.h. The assembler includes the files (.incbin). -MMD does not see
 * that, so the Makefile lists them as prerequisites of patterns_data.o.
 */
#include "diagnostics/patterns_data.h"

#define FILE_IN(name)                                                                              \
    __asm__(".pushsection .rodata\n"                                                               \
            "hvd_patterns_" #name "_begin:\n"                                                      \
            ".incbin \"diagnostics/patterns/" #name ".txt\"\n"                                     \
            "hvd_patterns_" #name "_end:\n"                                                        \
            ".byte 0\n"                                                                            \
            ".popsection\n");                                                                      \
    extern const char hvd_patterns_##name##_begin[], hvd_patterns_##name##_end[]

#define ENTRY(name)                                                                                \
    {                                                                                              \
#name ".txt", hvd_patterns_##name##_begin, hvd_patterns_##name##_end                       \
    }

FILE_IN(hvd);
FILE_IN(xid);
FILE_IN(gpu);
FILE_IN(memory);
FILE_IN(nccl);
FILE_IN(mpi);
FILE_IN(network);
FILE_IN(container);
FILE_IN(library);
FILE_IN(framework);
FILE_IN(general);

const struct patterns_file patterns_files[] = {
    ENTRY(hvd),     ENTRY(xid),       ENTRY(gpu),     ENTRY(memory),    ENTRY(nccl),    ENTRY(mpi),
    ENTRY(network), ENTRY(container), ENTRY(library), ENTRY(framework), ENTRY(general),
};
const size_t patterns_nfiles = sizeof(patterns_files) / sizeof(patterns_files[0]);
