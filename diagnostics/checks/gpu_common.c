/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_common: see gpu.h.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/checks/gpu.h"
#include "diagnostics/checks/libs.h"

int gpu_on_pci(const struct machine *m)
{
    auto_free char **names = NULL;
    char vendor[16], class[16];
    int n = 0;
    if (machine_list(m, "sys/bus/pci/devices", &names, NULL) < 0)
        return -1;
    for (char **name = names; *name; name++) {
        if (machine_line(m, vendor, sizeof(vendor), "sys/bus/pci/devices/%s/vendor", *name) == 0 &&
            strcmp(vendor, "0x10de") == 0 &&
            machine_line(m, class, sizeof(class), "sys/bus/pci/devices/%s/class", *name) == 0)
            n += strncmp(class, "0x03", 4) == 0;
    }
    return n;
}

int gpu_device_files(const struct machine *m)
{
    auto_free char **names = NULL;
    int n = 0;
    if (machine_list(m, "dev", &names, NULL) < 0)
        return 0;
    for (char **name = names; *name; name++)
        n += strncmp(*name, "nvidia", 6) == 0 && isdigit((unsigned char)(*name)[6]);
    return n;
}

const struct answer *gpu_nvml(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "nvml");
    char text[128];
    if (a->state != ANSWER_OK) {
        answer_describe(a, text, sizeof(text));
        result_skip(r, "NVML: %s", text);
    } else if (!answer_has(a, "path") && gpu_on_pci(v->machine) <= 0) {
        result_skip(r, "no NVIDIA GPU here");
    } else if (!answer_has(a, "path")) {
        result_skip(r, "no NVML (see nvml-load)");
    } else if (answer_int(a, "init", -1) != 0) {
        result_skip(r, "NVML: %s (see nvml-load)", answer_str(a, "init_text", "no answer"));
    } else if (answer_int(a, "count", 0) == 0) {
        result_skip(r, "NVML sees no GPU");
    } else {
        return a;
    }
    return NULL;
}

bool gpu_module_version(const struct machine *m, char *dst, size_t size)
{
    char line[256];
    if (machine_line(m, line, sizeof(line), "proc/driver/nvidia/version") < 0)
        return false;
    /* "NVRM version: NVIDIA UNIX [Open] x86_64 Kernel Module [for x86_64]  580.65.06  Sun ..." */
    for (const char *s = strstr(line, "Module"); s && *s; s++) {
        size_t n = strspn(s, "0123456789.");
        if (n >= 5 && s[-1] == ' ' && memchr(s, '.', n)) {
            snprintf(dst, size, "%.*s", (int)n, s);
            return true;
        }
        s += n ? n - 1 : 0;
    }
    return false;
}

void gpu_list_add(struct gpu_list *list, const struct answer *a, int i, const char *fmt, ...)
{
    va_list ap;
    char what[128];
    size_t at = strlen(list->text);
    const char *pci = answer_str_at(a, "gpu", i, "pci", NULL);
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    snprintf(list->text + at, sizeof(list->text) - at, "%sGPU %d%s%s%s %s", list->n ? ", " : "", i,
             pci ? " (" : "", pci ? pci : "", pci ? ")" : "", what);
    list->n++;
}
