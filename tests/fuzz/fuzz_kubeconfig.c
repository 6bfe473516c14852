/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_kubeconfig: a kubeconfig of any bytes. The values taken from it must have no line break,
 * which would become another header.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "operator/api/kubeconfig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text)
{
    if (text && strpbrk(text, "\r\n"))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct access a = {0};
    struct err err = {0};
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int rc = kubeconfig_load(path, false, NULL, &a, &err);
    if (rc == 0 ? !a.server : !err.msg[0])
        abort();
    if (rc == 0 && (!a.cert_file && !a.cert_pem) != (!a.key_file && !a.key_pem))
        abort();
    if (rc == 0 && a.exec.argv && !a.exec.argv[0])
        abort();
    check(a.server);
    check(a.token);
    check(a.tls_server_name);
    check(a.proxy_url);
    check(a.username);
    access_fini(&a);
    close(fd);
    return 0;
}
