# SPDX-License-Identifier: Apache-2.0
"""enter.py EMULATOR ROOT COMMAND...: runs a command which can start programs for aarch64 as if they were
this machine's: EMULATOR runs them, and ROOT's loader and libraries are in /usr/lib. (qemu's own way to find
them, QEMU_LD_PREFIX, would replace each file that also exists in ROOT, even / itself.)

The kernel is set up for it (binfmt_misc, overlayfs) in namespaces of the command, so that the machine itself
does not change. Users and groups are those outside. Exit code 77 if the kernel cannot do that: binfmt_misc
belongs to a user namespace since Linux 6.7, and is optional.
"""

import ctypes
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_RDONLY = 1
NETNS = '/run/netns'
MISC = '/proc/sys/fs/binfmt_misc'
# The head of an ELF file for aarch64, of any system, a program or one that can be loaded anywhere.
MAGIC = '7f454c460201010000000000000000000200b700'
MASK = 'ffffffffffffff00fffffffffffffffffeffffff'


def escaped(text):
    return ''.join(f'\\x{text[i:i + 2]}' for i in range(0, len(text), 2))


def call(name, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), f'{name}: {os.strerror(ctypes.get_errno())}')


def write(path, text):
    with open(path, 'w', encoding='ascii') as file:
        file.write(text)


def map_users(pid):
    if os.geteuid() == 0:
        write(f'/proc/{pid}/uid_map', '0 0 4294967295')
        write(f'/proc/{pid}/gid_map', '0 0 4294967295')
    else:
        write(f'/proc/{pid}/setgroups', 'deny')
        write(f'/proc/{pid}/uid_map', f'0 {os.geteuid()} 1')
        write(f'/proc/{pid}/gid_map', f'0 {os.getegid()} 1')


def enter():
    """Enters the namespaces. A child that stays outside writes the map of users."""
    here, there = os.pipe(), os.pipe()
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.read(here[0], 1)
        try:
            map_users(me)
            os.write(there[1], b'y')
        except OSError as e:
            os.write(there[1], str(e).encode())
        os._exit(0)
    call('unshare', CLONE_NEWUSER | CLONE_NEWNS)
    os.write(here[1], b'x')
    said = os.read(there[0], 200)
    os.waitpid(pid, 0)
    if said != b'y':
        raise OSError(0, said.decode())


def main():
    emulator, root, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    layers = f'lowerdir={root}/lib:{root}/usr/lib:/usr/lib'
    try:
        enter()
        call('mount', b'overlay', b'/usr/lib', b'overlay', MS_RDONLY, layers.encode())
        if os.path.isdir(NETNS):  # hides namespaces that a test cannot use or remove
            call('mount', b'none', NETNS.encode(), b'tmpfs', 0, None)
        call('mount', b'none', MISC.encode(), b'binfmt_misc', 0, None)
        write(f'{MISC}/register', f':hvd-aarch64:M::{escaped(MAGIC)}:{escaped(MASK)}:{emulator}:F')
    except OSError as e:
        print(f'enter: no emulator for this command alone: {e}', file=sys.stderr)
        sys.exit(77)
    os.execvp(command[0], command)


main()
