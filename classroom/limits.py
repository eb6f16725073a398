"""Limits the memory of a group of processes, if Linux control groups are writable.

Otherwise, as in most containers, `open_group` returns None, and limits apply to each process.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
# Limit of processes and threads of an account, which stops a fork bomb.
PROCESSES = 512


def memory_groups(groups: Path = GROUPS) -> tuple[Path, str] | None:
    """Find the control groups that can limit the memory of a group of processes.

    Args:
        groups: Mount point of the control groups.

    Returns:
        Our folder, created if missing, and the name of the file that sets the limit. None if there
        are no control groups, or they are not writable.
    """
    try:
        if (groups / "memory").is_dir():  # version 1
            ours, limit = groups / "memory" / "twelve", "memory.limit_in_bytes"
            ours.mkdir(exist_ok=True)
        else:
            ours, limit = groups / "twelve", "memory.max"
            (groups / "cgroup.subtree_control").write_text("+memory")
            ours.mkdir(exist_ok=True)
            (ours / "cgroup.subtree_control").write_text("+memory")
    except OSError:
        return None
    # For another account, the folder may exist but belong to root.
    return (ours, limit) if os.access(ours, os.W_OK) else None


def open_group(name: str, memory: int) -> Path | None:
    """Create a group of processes with a joint memory limit.

    Args:
        name: The name of the group.
        memory: Limit in bytes.

    Returns:
        Folder of the group: a process joins by writing its PID to `cgroup.procs`. None if control
        groups are not available.
    """
    groups = memory_groups()
    if not groups:
        return None
    ours, limit = groups
    group = ours / name
    group.mkdir(exist_ok=True)
    (group / limit).write_text(str(memory))
    return group


def close_group(group: Path) -> None:
    """Kill every process of a group, and remove the group."""
    for _ in range(20):
        with contextlib.suppress(FileNotFoundError):
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
        if not group.exists():
            return
        time.sleep(0.1)  # wait until the processes have ended


def forget(groups: Path = GROUPS) -> None:
    """Remove our folder, if no group is left in it."""
    if ours := memory_groups(groups):
        with contextlib.suppress(OSError):
            ours[0].rmdir()
