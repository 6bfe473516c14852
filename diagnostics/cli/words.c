/* SPDX-License-Identifier: Apache-2.0
 *
 * words: see words.h.
 */
#include "diagnostics/cli/words.h"

#include <stdio.h>

#include "diagnostics/setting.h"

const char *words_profile(size_t i, unsigned *bit)
{
    static const struct {
        const char *name;
        unsigned bit;
    } all[] = {{"cpu", PROFILE_CPU},
               {"gpu", PROFILE_GPU},
               {"k8s", PROFILE_K8S},
               {"launcher", PROFILE_LAUNCHER}};
    if (i >= sizeof(all) / sizeof(all[0]))
        return NULL;
    *bit = all[i].bit;
    return all[i].name;
}

char *words_profiles(unsigned profiles, char *dst, size_t size)
{
    const char *name;
    unsigned bit;
    size_t n = 0;
    *dst = '\0';
    for (size_t i = 0; (name = words_profile(i, &bit)); i++) {
        if (profiles & bit && n < size)
            n += (size_t)snprintf(dst + n, size - n, "%s%s", n ? "," : "", name);
    }
    return dst;
}

json_t *words_profiles_json(unsigned profiles)
{
    json_t *list = json_array();
    const char *name;
    unsigned bit;
    for (size_t i = 0; (name = words_profile(i, &bit)); i++) {
        if (profiles & bit)
            json_array_append_new(list, json_string(name));
    }
    return list;
}
