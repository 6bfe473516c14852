/* SPDX-License-Identifier: Apache-2.0
 *
 * checkbuild_gpu: prints the GPU part of `hvdrun --check-build`: the NCCL that a process with this
 * machine's torch would use, the driver, hvd's kernels. A child process loads the libraries, so
 * that a hang or crash of a library becomes a line of the output. Touches no GPU. Main thread.
 */
#ifndef HVD_AGENT_CHECKBUILD_GPU_H
#define HVD_AGENT_CHECKBUILD_GPU_H

/* torch, hvd: folders of these Python packages, "" if not installed. */
void checkbuild_print_gpu(const char *torch, const char *hvd);

#endif
