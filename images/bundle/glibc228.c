/* SPDX-License-Identifier: Apache-2.0
 *
 * glibc228: functions that this system's glibc has and 2.28 has not, for libhvd.so and hvd-probe of
 * the bundle. They stay inside. Programs made with a glibc before 2.33 had them from a part of
 * glibc that was linked into each of them; on these machines the kernel's struct stat is the
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
