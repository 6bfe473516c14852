/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu: what the checks of GPUs have in common: is there one, what does NVML say, which of them are
 * meant. Pure functions of the view.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_GPU_H
#define HVD_DIAGNOSTICS_CHECKS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnostics/check.h"

/* NVIDIA GPUs on the PCI bus (vendor 10de, class display); -1: /sys is not there. */
int gpu_on_pci(const struct machine *m);

/* Device files /dev/nvidia0 ... */
int gpu_device_files(const struct machine *m);

/* NVML's answer when it has one about GPUs; otherwise NULL and the result is a skip with the
 * reason: no GPU here, or NVML did not say (nvml-load reports that). */
const struct answer *gpu_nvml(const struct view *v, struct result *r);

/* Version of the loaded kernel module by /proc/driver/nvidia/version; false: none is loaded. */
bool gpu_module_version(const struct machine *m, char *dst, size_t size);

/* "GPU 3 (0000:3b:00.0) has ..." onto a list with ", " between. */
struct gpu_list {
    char text[RESULT_TEXT / 2];
    int n;
};
void gpu_list_add(struct gpu_list *list, const struct answer *a, int i, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
