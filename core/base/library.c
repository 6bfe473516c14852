/* SPDX-License-Identifier: Apache-2.0
 *
 * library: see library.h.
 */
#include "core/base/library.h"

#include <dlfcn.h>

int library_open(const char *const *names, const struct library_symbol *symbols, size_t nsymbols,
                 void **ret_handle, struct err *err)
{
    void *handle = NULL;
    const char *name = NULL;
    for (size_t i = 0; names[i] && !handle; i++) {
        name = names[i];
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (!handle) {
        const char *why = dlerror();
        return err_set(err, ENOENT, "%s", why ? why : "no library to look for");
    }
    for (size_t i = 0; i < nsymbols; i++) {
        if (dlsym(handle, symbols[i].name))
            continue;
        dlclose(handle);
        return err_set(err, ENOSYS, "%s has no %s", name, symbols[i].name);
    }
    for (size_t i = 0; i < nsymbols; i++)
        *symbols[i].ret = dlsym(handle, symbols[i].name);
    *ret_handle = handle;
    return 0;
}
