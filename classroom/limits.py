"""Limits the memory of a group of processes, where the control groups of Linux can be written.

Elsewhere, as in most containers, `open_group` returns None, and a limit holds for each process.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
# Processes and threads of one account: a fork bomb ends with an error.
PROCESSES = 512


def memory_groups(groups: Path = GROUPS) -> tuple[Path, str] | None:
    """Find where the memory of a group of processes can be limited.

    Args:
        groups: Where the control groups are mounted.

    Returns:
        Our folder, which is made, and the name of the file that takes the limit. None if there are
        no control groups, or they cannot be written.
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
    # An account finds the folder that root made.
    return (ours, limit) if os.access(ours, os.W_OK) else None


def open_group(name: str, memory: int) -> Path | None:
    """Make a group whose processes may use so much memory together.

    Args:
        name: The name of the group.
        memory: In bytes.

    Returns:
        Its folder: a process joins by writing its PID to `cgroup.procs`. None without groups.
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
    """End every process of a group, and remove the group."""
    for _ in range(20):
        with contextlib.suppress(FileNotFoundError):
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
        if not group.exists():
            return
        time.sleep(0.1)  # until they have ended
