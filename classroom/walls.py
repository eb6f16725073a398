"""Starts a program behind walls: it sees a copy of the machine in which nobody else's files are.

Usage: unshare --fork --kill-child --pid --mount --net --ipc [--user ...] python walls.py RULES

RULES is a JSON list of arguments of `enter`. Inside are the folders that are named, read-only; a
home of its own in memory; one folder that is shared with whoever started it; no other process, no
network. `unshare` (util-linux) makes the namespaces, and this file, which needs nothing but Python,
furnishes them. It runs as root, or as any account where Linux lets accounts have namespaces.
"""

import ctypes
import json
import os
import platform
import resource
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_KEPT = {os.ST_NOEXEC: 8, os.ST_NOATIME: 1024, os.ST_NODIRATIME: 2048, os.ST_RELATIME: 1 << 21}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_END_WITH_PARENT, _NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR = 1, 38, 47, 4
_DEVICES = ("null", "zero", "urandom", "random")
# Of all files together, in memory.
_ROOM = "64m"

_libc = ctypes.CDLL(None, use_errno=True)


def enter(
    root: str,
    shared: str,
    seen: Sequence[str],
    home: str,
    handed_in: str,
    environment: dict[str, str],
    account: int | None,
    limits: dict[str, int],
    command: Sequence[str],
) -> None:
    """Furnish the namespaces and become the program.

    Args:
        root: An empty folder; what is mounted there is seen from inside alone.
        shared: What the program writes here is seen outside, under the same name.
        seen: What else is seen from inside, for reading.
        home: Where the program starts and may write; it is gone with it.
        handed_in: A folder whose files lie in the home.
        environment: All that the program has.
        account: The number of the account that root becomes; None if root did not start this.
        limits: By their names in `resource`.
        command: The program and its arguments.

    Raises:
        OSError: If the system refuses something: then the program is not started.
    """
    # Where memory runs out, this goes first.
    Path("/proc/self/oom_score_adj").write_text("1000")
    _mount("none", "/", _REC | _PRIVATE)
    _mount("tmpfs", root, _NOSUID | _NODEV, "tmpfs", f"size={_ROOM},mode=755")
    for one in (*seen, *(f"/dev/{name}" for name in _DEVICES)):
        _show(root, one)
    _show(root, shared, writable=True)
    for one in ("/proc", "/tmp"):
        os.makedirs(root + one, exist_ok=True)
    _mount("proc", f"{root}/proc", _NOSUID | _NODEV, "proc")
    inside = Path(root + home)
    shutil.copytree(handed_in, inside)
    for path in (inside, *inside.rglob("*")):
        path.chmod(0o700)
        if account is not None:
            os.chown(path, account, account)
    if account is not None:
        for path in (shared, *Path(shared).iterdir()):
            os.chown(path, account, account)

    os.chdir(root)
    if _libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."):
        raise _refused("pivot_root")
    if _libc.umount2(b".", 2):  # what was there before lies beneath
        raise _refused("umount")
    os.chdir(home)

    for name, most in limits.items():
        resource.setrlimit(getattr(resource, name), (most, most))
    if account is not None:
        os.setgroups([])
        os.setgid(account)
        os.setuid(account)
    # Whoever becomes another account has to ask again to end with what started it.
    _libc.prctl(_END_WITH_PARENT, 9)
    _libc.prctl(_AMBIENT, _CLEAR, 0, 0, 0)
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise _refused("prctl")
    # What it writes there reaches nobody's terminal.
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.execve(command[0], command, environment)


def _show(root: str, path: str, *, writable: bool = False) -> None:
    """Show a file or a folder under the same name in the new root."""
    if not os.path.lexists(path) or os.path.lexists(root + path):
        return
    os.makedirs(os.path.dirname(root + path), exist_ok=True)
    if os.path.islink(path):  # as /lib is today
        os.symlink(os.readlink(path), root + path)
        _show(root, os.path.realpath(path), writable=writable)
        return
    if os.path.isdir(path):
        os.mkdir(root + path)
    else:
        Path(root + path).touch()
    _mount(path, root + path, _BIND | _REC)
    # What the mount forbids already may not be taken back.
    flags = os.statvfs(path).f_flag
    kept = sum(ours for theirs, ours in _KEPT.items() if flags & theirs)
    nodev = 0 if path.startswith("/dev/") else _NODEV
    only_read = 0 if writable else _RDONLY
    _mount("none", root + path, _BIND | _REMOUNT | _NOSUID | nodev | only_read | kept)


def _mount(source: str, target: str, flags: int, kind: str = "", data: str = "") -> None:
    words = (one.encode() or None for one in (source, target, kind))
    if _libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None):
        raise _refused(f"mount {source} on {target}")


def _refused(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        enter(*json.loads(sys.argv[1]))
    except OSError as error:
        sys.exit(f"The walls cannot be built: {error}")
