/* SPDX-License-Identifier: Apache-2.0
 *
 * checkbuild_gpu: what `hvdrun --check-build` says about GPUs: the NCCL that a process with this
 * machine's torch would use, the driver, hvd's kernels. Libraries are loaded in a child, so that
 * one that hangs or crashes is a line; no GPU is touched. Main thread.
 */
#ifndef HVD_AGENT_CHECKBUILD_GPU_H
#define HVD_AGENT_CHECKBUILD_GPU_H

/* torch, hvd: folders of these Python packages; empty: there is none. */
void checkbuild_print_gpu(const char *torch, const char *hvd);

#endif
