/* SPDX-License-Identifier: Apache-2.0
 *
 * antiaffinity: the required anti-affinity of a pod: which other pods may not run on the nodes of
 * its domain, the nodes with the same value of a label (topologyKey). Pure; the caller of
 * antiaffinity_parse() calls antiaffinity_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_ANTIAFFINITY_H
#define HVD_OPERATOR_OBJECTS_ANTIAFFINITY_H

#include "operator/objects/selector.h"

#define ANTIAFFINITY_MAX 8192 /* bytes of JSON in one pod */

struct anti_term {
    char *topology; /* topologyKey */
    struct selector pods;
    char *namespaces; /* texts, each with its NUL, an empty one at the end; NULL: none */
    struct selector namespace_selector;
};

struct antiaffinity {
    struct anti_term *all; /* [n] */
    int n;
};

/* Sets *ret to the pod's terms as one text, the same for pods with the same terms in the same
 * namespace; NULL: it has none. The caller frees it. -E2BIG: longer than ANTIAFFINITY_MAX.
 * -ENOMEM. */
int antiaffinity_text(json_t *pod, char **ret);

/* text: by antiaffinity_text(). -EINVAL, -ENOMEM. */
int antiaffinity_parse(const char *text, struct antiaffinity *ret);
void antiaffinity_fini(struct antiaffinity *a);

/* True if the term keeps pods with these labels away. namespace_labels: NULL: not known, except
 * kubernetes.io/metadata.name. Not known either are a worker's number and attempt. Requirements of
 * what is not known count as fulfilled, so the term may seem to keep away more. */
bool anti_term_selects(const struct anti_term *t, const char *namespace,
                       const struct labels *namespace_labels, const struct labels *labels);

#endif
