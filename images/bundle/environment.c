/* SPDX-License-Identifier: Apache-2.0
 *
 * environment: in every program of the bundle, before its main(): takes back what hvd-launch has
 * put aside, so that ranks and probes see what their image says; and lets Python find the package.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "images/bundle/place.h"

#define PACKAGE BUNDLE_PLACE "/python"

static void take_back(const char *name)
{
    char kept[64];
    snprintf(kept, sizeof(kept), BUNDLE_KEPT_PREFIX "%s", name);
    const char *value = getenv(kept);
    if (value && setenv(name, value, 1) == 0)
        unsetenv(kept);
}

/* In front of what the image says: a library and an agent of two versions would not understand each
 * other. */
static void add_package(void)
{
    const char *old = getenv("PYTHONPATH");
    size_t n = strlen(PACKAGE);
    char *text;
    if (old && strncmp(old, PACKAGE, n) == 0 && (old[n] == ':' || old[n] == '\0'))
        return;
    if (asprintf(&text, "%s%s%s", PACKAGE, old && *old ? ":" : "", old ? old : "") < 0)
        return;
    setenv("PYTHONPATH", text, 1);
    free(text);
}

__attribute__((constructor)) static void restore_environment(void)
{
    static const char *const names[] = {BUNDLE_KEPT_NAMES, NULL};
    for (int i = 0; names[i]; i++)
        take_back(names[i]);
    add_package();
}
