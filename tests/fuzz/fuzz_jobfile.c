/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_jobfile: any bytes as a job file, a configuration of horovodrun, a host file, a -H list, and
 * the output of a host discovery script.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/discovery.h"
#include "agent/horovod_config.h"
#include "agent/hosts.h"
#include "agent/jobfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_hosts(const char *path, const uint8_t *data, size_t size)
{
    struct hosts hosts = {0};
    /* Not strndup: strict string checks read on to a NUL, and the input has none. */
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (hosts_parse(&hosts, text, NULL) == 0 && hosts.n < 1)
        abort();
    if (discovery_parse(text, size, 2, &hosts, NULL) == 0 && hosts.n < 1)
        abort();
    free(text);
    hosts_read(&hosts, path, NULL);
    if (hosts_assign(&hosts, 0, NULL) == 0 && hosts_ranks(&hosts) < 1)
        abort();
    hosts_fini(&hosts);
}

static int take(void *arg, const char *option, const char *value, const char *at, struct err *err)
{
    (void)arg, (void)err;
    if (!option || !value || !strchr(at, ':'))
        abort();
    return 0;
}

static int unknown(void *arg, const char *name, const char *at)
{
    (void)arg;
    if (!name || !strchr(at, ':'))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job job;
    struct err err = {0};
    char path[64], ignored[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    job_init(&job);
    int rc = jobfile_read(&job, path, ignored, sizeof(ignored), &err);
    if (rc == 0 ? !job.argv || job.np < 1 : !err.msg[0])
        abort();
    job_fini(&job);
    err = (struct err){0};
    if (horovod_config_read(path, take, unknown, NULL, &err) < 0 && !err.msg[0])
        abort();
    as_hosts(path, data, size);
    close(fd);
    return 0;
}
