/* SPDX-License-Identifier: Apache-2.0
 *
 * glibc228: functions that this system's glibc has and 2.28 lacks, for libhvd.so and hvd-probe of
 * the bundle. They are not exported. Before 2.33 glibc linked them statically into each program.
 * They can be this simple because on our architectures the kernel's struct stat equals the
 * program's.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fstatat(int folder, const char *path, struct stat *ret, int flags)
{
    return (int)syscall(SYS_newfstatat, folder, path, ret, flags);
}

int stat(const char *path, struct stat *ret)
{
    return fstatat(AT_FDCWD, path, ret, 0);
}

int lstat(const char *path, struct stat *ret)
{
    return fstatat(AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *ret)
{
    return fstatat(fd, "", ret, AT_EMPTY_PATH);
}
