/* SPDX-License-Identifier: Apache-2.0
 *
 * environment: runs in hvd-agent, hvd-doctor and hvdrun of the bundle before main(). It restores
 * the variables that hvd-launch has saved, so that ranks and probes see the image's values, and
 * adds the bundle's Python package to PYTHONPATH.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "images/bundle/place.h"

#define PACKAGE BUNDLE_PLACE "/python"

static void restore(const char *name)
{
    char saved[64];
    snprintf(saved, sizeof(saved), BUNDLE_SAVED_PREFIX "%s", name);
    const char *value = getenv(saved);
    if (value && setenv(name, value, 1) == 0)
        unsetenv(saved);
}

/* The bundle's package comes before those of the image: library and agent must be of the same
 * version. */
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
    static const char *const names[] = {BUNDLE_SAVED_NAMES, NULL};
    for (int i = 0; names[i]; i++)
        restore(names[i]);
    add_package();
}
