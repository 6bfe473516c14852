/* SPDX-License-Identifier: Apache-2.0
 *
 * module: accepts any image. Its kernels are those of kernels.c, and they run on streams.
 */
#include "tests/fake/cuda/fake.h"

#define NAME_SIZE 64

/* Modules that are not unloaded stay reachable here, so that the leak checker does not report
 * them: with the real driver it would not see them either. */
static struct CUmod_st {
    struct CUmod_st *next;
    struct CUfunc_st *functions;
} * modules;

struct CUfunc_st {
    struct CUfunc_st *next;
    char name[NAME_SIZE];
    fake_kernel_f *run;
    size_t size; /* of its parameters */
};

struct launch {
    fake_kernel_f *run;
    char name[NAME_SIZE];
    char parameters[];
};

unsigned cuModuleLoadData(struct CUmod_st **ret, const void *image)
{
    unsigned code = fake_enter(__func__, FAKE_UNSAFE);
    if (code)
        return code;
    struct CUmod_st *module = calloc(1, sizeof(*module));
    if (!module)
        return CUDA_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake_lock);
    module->next = modules;
    modules = module;
    fake_live++;
    pthread_mutex_unlock(&fake_lock);
    *ret = module;
    return CUDA_OK;
}

unsigned cuModuleUnload(struct CUmod_st *module)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    for (struct CUfunc_st *f = module->functions, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    pthread_mutex_lock(&fake_lock);
    struct CUmod_st **link = &modules;
    while (*link != module)
        link = &(*link)->next;
    *link = module->next;
    free(module);
    fake_live--;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_OK;
}

unsigned cuModuleGetFunction(struct CUfunc_st **ret, struct CUmod_st *module, const char *name)
{
    size_t size = 0;
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    fake_kernel_f *run = fake_kernel(name, &size);
    struct CUfunc_st *f = run ? calloc(1, sizeof(*f)) : NULL;
    if (!f)
        return run ? CUDA_OUT_OF_MEMORY : CUDA_NOT_FOUND;
    snprintf(f->name, sizeof(f->name), "%s", name);
    f->run = run;
    f->size = size;
    f->next = module->functions;
    module->functions = f;
    *ret = f;
    return CUDA_OK;
}

static unsigned run(struct fake_task *task)
{
    struct launch *l = task->data;
    return l->run(l->name, l->parameters) ? CUDA_OK : CUDA_ILLEGAL_ADDRESS;
}

static void drop(struct fake_task *task)
{
    free(task->data);
}

unsigned cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned shared, struct CUstream_st *stream, void **parameters,
                        void **extra)
{
    unsigned code = fake_enter(__func__, FAKE_CONTEXT);
    if (code)
        return code;
    if (!grid_x || !grid_y || !grid_z || !block_y || !block_z || block_x != 256)
        return CUDA_INVALID_VALUE;
    struct launch *l = malloc(sizeof(*l) + function->size);
    if (!l)
        return CUDA_OUT_OF_MEMORY;
    l->run = function->run;
    memcpy(l->name, function->name, sizeof(l->name));
    memcpy(l->parameters, parameters[0], function->size);
    pthread_mutex_lock(&fake_lock);
    struct fake_task *task = fake_append(__func__, FAKE_KERNEL, stream, run);
    if (task) {
        task->data = l;
        task->drop = drop;
        task->bytes = fake_kernel_bytes(l->name, l->parameters);
        task->takes = fake_takes(FAKE_KERNEL, task->bytes);
    }
    pthread_mutex_unlock(&fake_lock);
    if (!task)
        free(l);
    return task ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}
