/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu: helpers that the GPU checks share: is there a GPU, what did NVML answer, a list of GPUs with
 * a remark each. Pure functions of the view.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_GPU_H
#define HVD_DIAGNOSTICS_CHECKS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnostics/check.h"

/* How many NVIDIA GPUs are on the PCI bus (vendor 10de, class display); -1: /sys is missing. */
int gpu_on_pci(const struct machine *m);

/* How many device files /dev/nvidia0 ... there are. */
int gpu_device_files(const struct machine *m);

/* The answer of the NVML probe if it lists GPUs. Otherwise NULL, and the result is a skip with
 * the reason: no GPU here, or no answer of NVML (nvml-load reports that). */
const struct answer *gpu_nvml(const struct view *v, struct result *r);

/* Version of the loaded kernel module from /proc/driver/nvidia/version; false: no module is
 * loaded. */
bool gpu_module_version(const struct machine *m, char *dst, size_t size);

/* Collects "GPU 3 (0000:3b:00.0) has ..." texts, separated by ", ". */
struct gpu_list {
    char text[RESULT_TEXT / 2];
    int n;
};
void gpu_list_add(struct gpu_list *list, const struct answer *a, int i, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
