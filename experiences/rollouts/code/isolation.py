"""Starts a command in namespaces of its own. A program: ``python -I -S isolation.py '<JSON of Isolation>'``.

Linux from 5.12, unprivileged user namespaces. The command sees no network, no process but its own, and a file system of
the paths that it is given (read only) and an empty /tmp in memory; it has no capabilities, and another user than root.
A filter of system calls closes what no namespace or limit covers: keyrings, shared memory that no process owns,
io_uring, and sockets of other families than a network namespace isolates.

    launcher          signal_mapped the ids, ends itself at the time limit
      unshared        in new namespaces
        init          process 1: mounts, gives up root; its end ends every process inside
          command     under limits of processor time, memory, processes, files

Each dies with the one above it. Standard library only: what runs here has no site-packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import Any, Final

NAMESPACES: Final = (
    0x10000000 | 0x00020000 | 0x40000000 | 0x20000000 | 0x08000000 | 0x04000000
)  # user mnt net pid ipc uts
RECURSIVE, PRIVATE, REMOUNT = 0x4000, 0x40000, 0x20
READ_ONLY, NO_SETUID, NO_DEVICES = 0x1, 0x2, 0x4  # the same for mount and mount_setattr
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442  # system calls without a function in libc; alike on all processors
AT_FDCWD, AT_RECURSIVE, AT_EMPTY_PATH, CLONE, FROM_EMPTY_PATH = -100, 0x8000, 0x1000, 0x1, 0x4
DIE_WITH_PARENT, NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 1, 38, 22, 2
JOIN_SESSION_KEYRING = 1
INSIDE: Final = 1000  # uid and gid inside
UNPRIVILEGED_ID: Final = 65524  # outside, where the launcher is root: no other process has this user
ROOT: Final = Path("/proc")  # exists everywhere, and nothing that is bound lies in it
DEVICES: Final = (Path("/dev/null"), Path("/dev/zero"), Path("/dev/urandom"))
# The filter, by processor: its AUDIT_ARCH, ``socket``, ``keyctl``, and all calls that are refused besides.
PROCESSORS: Final = {
    "x86_64": (0xC000003E, 41, 250, (248, 249, 29, 30, 68, 64, 240, 319, 321, 298, 323)),
    "aarch64": (0xC00000B7, 198, 219, (217, 218, 194, 196, 186, 190, 180, 279, 280, 241, 282)),
}  # add_key request_key shmget shmat msgget semget mq_open memfd_create bpf perf_event_open userfaultfd
REFUSED_EVERYWHERE: Final = (425, 426, 427, 447)  # io_uring_setup, io_uring_enter, io_uring_register, memfd_secret
FAMILIES: Final = (1, 2, 10)  # of sockets: AF_UNIX, AF_INET, AF_INET6
OTHER_ABI: Final = 0x40000000  # x32: the same calls under other numbers
LOAD_WORD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # instructions of classic BPF
NUMBER_AT, PROCESSOR_AT, FIRST_ARGUMENT_AT = 0, 4, 16  # in struct seccomp_data; both processors are little-endian
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> int:
    done: int = getattr(_libc, name)(*arguments)
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return done


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def _protect(mount: int, attributes: int) -> None:
    wanted = _MountAttributes(set=attributes)
    flags = AT_EMPTY_PATH | AT_RECURSIVE
    _call("syscall", MOUNT_SETATTR, mount, b"", flags, ctypes.byref(wanted), ctypes.sizeof(wanted))


def _taken(path: Path, attributes: int) -> int:
    """A descriptor of a copy of what is mounted at ``path``."""
    mount = _call("syscall", OPEN_TREE, AT_FDCWD, os.fsencode(path), CLONE | AT_RECURSIVE | os.O_CLOEXEC)
    _protect(mount, attributes)
    return mount


def _tmpfs(target: Path, options: str) -> None:
    _call("mount", b"tmpfs", os.fsencode(target), b"tmpfs", ctypes.c_ulong(0), options.encode())


def _enter(shown: list[str], disk_bytes: int) -> None:
    """Makes the file system, gives up root, and goes in. What is shown keeps its path; a link is shown as a link."""
    _call("mount", b"none", b"/", None, ctypes.c_ulong(RECURSIVE | PRIVATE), None)
    kept = dict.fromkeys(map(Path, shown), READ_ONLY | NO_SETUID | NO_DEVICES) | dict.fromkeys(DEVICES, NO_SETUID)
    links = {path: path.readlink() for path in kept if path.is_symlink()}
    folders = {path for path in kept if path.is_dir()}
    mounts = {path: _taken(path, how) for path, how in kept.items() if path not in links}
    with contextlib.suppress(PermissionError):  # only root has groups to give up that it may
        os.setgroups([])
    # Taken as who may read them, put as who owns the new file system.
    os.setresgid(INSIDE, INSIDE, INSIDE)
    os.setresuid(INSIDE, INSIDE, INSIDE)
    _tmpfs(ROOT, "size=64k,mode=755")
    (ROOT / "tmp").mkdir()  # before what is shown, which may lie in it
    _tmpfs(ROOT / "tmp", f"size={disk_bytes},nr_inodes=1024,mode=1777")
    for path in kept:
        target = ROOT / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in links:
            target.symlink_to(links[path])
            continue
        target.mkdir(exist_ok=True) if path in folders else target.touch()
        _call("syscall", MOVE_MOUNT, mounts[path], b"", AT_FDCWD, os.fsencode(target), FROM_EMPTY_PATH)
    _call("mount", None, os.fsencode(ROOT), None, ctypes.c_ulong(REMOUNT | READ_ONLY | NO_SETUID | NO_DEVICES), None)
    os.chroot(ROOT)
    os.chdir("/tmp")  # noqa: S108 - of the sandbox


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _filter() -> bytes:
    """The instructions of the filter. Raises OSError: the processor is unknown."""
    machine = os.uname().machine
    if machine not in PROCESSORS:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {machine}")
    processor, socket, keyctl, refused = PROCESSORS[machine]
    refuse = (RETURN, 0, 0, REFUSE)
    steps = [(LOAD_WORD, 0, 0, PROCESSOR_AT), (JUMP_IF_EQUAL, 1, 0, processor), refuse]
    steps += [(LOAD_WORD, 0, 0, NUMBER_AT), (JUMP_IF_AT_LEAST, 0, 1, OTHER_ABI), refuse]
    for number in (keyctl, *refused, *REFUSED_EVERYWHERE):
        steps += [(JUMP_IF_EQUAL, 0, 1, number), refuse]
    steps += [(JUMP_IF_EQUAL, 1, 0, socket), (RETURN, 0, 0, ALLOW), (LOAD_WORD, 0, 0, FIRST_ARGUMENT_AT)]
    for family in FAMILIES:
        steps += [(JUMP_IF_EQUAL, 0, 1, family), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in [*steps, refuse])


def _refuse_calls() -> None:
    """Needs NO_NEW_PRIVILEGES. Children inherit the filter, and nothing takes it away."""
    code = _filter()
    program = _Program(len(code) // 8, code)
    _call("prctl", SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0)


def _leave_keyring() -> None:
    """The session keyring comes from the process that started this one. Where the kernel has no keyrings, or refuses
    this call, the filter alone keeps keys from the command."""
    if known := PROCESSORS.get(os.uname().machine):
        with contextlib.suppress(OSError):
            _call("syscall", known[2], JOIN_SESSION_KEYRING, None)


def _limit(limits: dict[str, int]) -> None:
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def _forked() -> int:
    """As ``os.fork``; a child dies with its parent."""
    child = os.fork()
    if child == 0:
        _call("prctl", DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    return child


def _exit_as(child: int) -> None:
    """Ends as the child does."""
    os._exit(min(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256, 255))


def _init(given: dict[str, Any]) -> None:
    """Process 1 of the sandbox."""
    with contextlib.suppress(OSError):  # /proc/sys is read only in some containers
        Path("/proc/sys/user/max_user_namespaces").write_text("0")  # of this namespace: no further one in it
    for limit in ("shmall", "shmmni"):  # kernels before 5.19 let only the host's root write them
        with contextlib.suppress(OSError):
            Path("/proc/sys/kernel", limit).write_text("0")
    _enter(given["shown"], given["disk_bytes"])
    _call("prctl", DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)  # a change of ids forgot it
    _call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _refuse_calls()
    command = _forked()
    if command == 0:
        _limit(given["limits"])
        os.execve(given["command"][0], given["command"], given["environment"])  # noqa: S606 - no shell is wanted
    _exit_as(command)


def _unshared(given: dict[str, Any], ready: int, mapped: int) -> None:
    _call("unshare", NAMESPACES)
    os.write(ready, b".")
    if os.read(mapped, 1) != b".":
        os._exit(1)
    init = _forked()
    if init == 0:
        _guarded(_init, given)
    _exit_as(init)


def _map(child: int) -> None:
    folder = Path("/proc") / str(child)
    for kind, own in (("gid", os.getegid()), ("uid", os.geteuid())):
        if kind == "gid" and own != 0:
            (folder / "setgroups").write_text("deny")
        (folder / f"{kind}_map").write_text(f"{INSIDE} {own or UNPRIVILEGED_ID} 1")


def _guarded(work: Any, *arguments: Any) -> None:
    """In a child: nothing of it returns to the code of its parent."""
    try:
        work(*arguments)
    except OSError as error:
        print(f"isolation: {error}", file=sys.stderr, flush=True)  # noqa: T201 - a program's output
    os._exit(125)


def main() -> None:
    given = json.loads(sys.argv[1])
    signal.alarm(given["seconds"])
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, this goes first
    _leave_keyring()
    (ready, signal_ready), (mapped, signal_mapped) = os.pipe(), os.pipe()
    child = _forked()
    if child == 0:
        os.close(signal_mapped)
        _guarded(_unshared, given, signal_ready, mapped)
    os.close(signal_ready)
    if os.read(ready, 1) == b".":
        _map(child)
        os.write(signal_mapped, b".")
    _exit_as(child)


if __name__ == "__main__":
    main()
