/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_rules: a file of version rules of any bytes. Accepted rules are asked about versions from
 * their own text. The first line of the input is the version.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/facts.h"
#include "diagnostics/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool some_hold(void *arg, const char *fact)
{
    facts_known(fact);
    return (unsigned char)fact[0] & 1;
}

static int sign(int x)
{
    return (x > 0) - (x < 0);
}

static void ask(const struct rules *rules, const char *version)
{
    const struct rule *hits[16];
    const struct rule_facts facts = {.holds = some_hold};
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *r = rules_at(rules, i);
        size_t n = rules_hits(rules, r->component, version, &facts, hits, 16);
        if (n > 16 || !r->text || !r->fix || !r->reference)
            abort();
        for (size_t k = 1; k < n; k++) {
            if (hits[k]->severity > hits[k - 1]->severity)
                abort();
        }
        if (sign(version_compare(r->range, version)) != -sign(version_compare(version, r->range)))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rules *rules = NULL;
    struct err err = {0};
    const uint8_t *end = memchr(data, '\n', size);
    size_t len = end ? (size_t)(end - data) : 0;
    char *version = malloc(len + 1), *text = malloc(size - len + 1);
    if (!version || !text)
        abort();
    if (len)
        memcpy(version, data, len);
    version[len] = '\0';
    if (size > len)
        memcpy(text, data + len, size - len);
    int rc = rules_parse(text, size - len, "fuzz", &rules, &err);
    if (rc == 0)
        ask(rules, version);
    else if (!err.msg[0] || rules)
        abort();
    rules_destroy(rules);
    free(text);
    free(version);
    return 0;
}
