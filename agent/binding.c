/* SPDX-License-Identifier: Apache-2.0
 *
 * binding: see binding.h.
 */
#include "agent/binding.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cpus.h"

static void say_all(struct binding *b, const char *text)
{
    for (int i = 0; i < b->n; i++)
        snprintf(b->texts[i], sizeof(b->texts[i]), "not bound: %s", text);
}

/* Loads the topology, restricted to the processors that this process may use. */
static int load(hwloc_topology_t *ret)
{
    hwloc_topology_t topo;
    if (hwloc_topology_init(&topo) < 0)
        return -ENOMEM;
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    int rc = mine ? hwloc_topology_load(topo) : -1;
    if (rc == 0 && hwloc_get_cpubind(topo, mine, HWLOC_CPUBIND_PROCESS) == 0)
        rc = hwloc_topology_restrict(topo, mine, 0);
    hwloc_bitmap_free(mine);
    if (rc < 0) {
        hwloc_topology_destroy(topo);
        return -EIO;
    }
    *ret = topo;
    return 0;
}

static void widen_to_node(hwloc_topology_t topo, hwloc_bitmap_t set)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topo, HWLOC_OBJ_NUMANODE, node))) {
        if (hwloc_bitmap_intersects(node->cpuset, set)) {
            hwloc_bitmap_copy(set, node->cpuset);
            return;
        }
    }
}

static void fill_one(struct binding *b, hwloc_topology_t topo, int i, hwloc_bitmap_t set)
{
    char cpus[96];
    int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topo, set, HWLOC_OBJ_CORE);
    hwloc_bitmap_list_snprintf(cpus, sizeof(cpus), set);
    hwloc_cpuset_to_glibc_sched_affinity(topo, set, &b->sets[i], sizeof(b->sets[i]));
    snprintf(b->texts[i], sizeof(b->texts[i]), "bound to %d core%s: cpus %s", cores,
             cores == 1 ? "" : "s", cpus);
}

static int share_out(struct binding *b, hwloc_topology_t topo, enum bind_to bind_to)
{
    hwloc_obj_t root = hwloc_get_root_obj(topo);
    hwloc_bitmap_t *sets = calloc((size_t)b->n, sizeof(hwloc_bitmap_t));
    b->sets = calloc((size_t)b->n, sizeof(*b->sets));
    int rc = sets && b->sets ? 0 : -ENOMEM;
    /* Distribute down to cores, so that no core is split between two ranks. */
    int depth = hwloc_get_type_or_below_depth(topo, HWLOC_OBJ_CORE);
    if (rc == 0)
        rc = hwloc_distrib(topo, &root, 1, sets, (unsigned)b->n, depth, 0) < 0 ? -EIO : 0;
    for (int i = 0; i < b->n && rc == 0; i++) {
        if (bind_to == BIND_NUMA)
            widen_to_node(topo, sets[i]);
        fill_one(b, topo, i, sets[i]);
    }
    for (int i = 0; sets && i < b->n; i++)
        hwloc_bitmap_free(sets[i]);
    free(sets);
    if (rc < 0) {
        free(b->sets);
        b->sets = NULL;
    }
    return rc;
}

int binding_init(struct binding *b, enum bind_to bind_to, int n, struct err *err)
{
    hwloc_topology_t topo;
    char text[96];
    *b = (struct binding){.n = n};
    b->texts = calloc((size_t)n + 1, sizeof(*b->texts));
    if (!b->texts)
        return err_set(err, ENOMEM, "no memory for %d ranks", n);
    if (bind_to == BIND_NONE) {
        say_all(b, "--bind-to none");
        return 0;
    }
    if (load(&topo) < 0) {
        say_all(b, "hwloc cannot read this machine");
        return 0;
    }
    int cores = hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_CORE), usable = cpus_usable();
    if (cores > usable || cores < 1)
        cores = usable;
    snprintf(text, sizeof(text), "%d ranks on %d usable core%s", n, cores, cores == 1 ? "" : "s");
    if (n > cores)
        say_all(b, text);
    else if (share_out(b, topo, bind_to) < 0)
        say_all(b, "hwloc cannot share this machine out");
    hwloc_topology_destroy(topo);
    return 0;
}

void binding_fini(struct binding *b)
{
    free(b->sets);
    free(b->texts);
    *b = (struct binding){0};
}

const cpu_set_t *binding_cpus(const struct binding *b, int i)
{
    return b->sets ? &b->sets[i] : NULL;
}

const char *binding_text(const struct binding *b, int i)
{
    return b->texts[i];
}
