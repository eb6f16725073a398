"""Where the memory of a student can be limited on this machine.

A control group of Linux limits all that an account runs together. Where none can be written, as in
most containers, each process has the limit for itself.
"""

import contextlib
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
# So many processes and threads an account may have: a loop that starts them ends with an error.
PROCESSES = 512


def memory_groups(groups: Path = GROUPS) -> tuple[Path, str] | None:
    """Find where memory can be limited for a group of processes.

    Args:
        groups: Where the control groups are mounted.

    Returns:
        The folder for ours, which is made, and the name of the file that takes the limit; or None
        where there is none, or it may not be written.
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
    return ours, limit


def forget(groups: Path = GROUPS) -> None:
    """Remove our folder where nobody is left in it.

    Args:
        groups: Where the control groups are mounted.
    """
    if found := memory_groups(groups):
        with contextlib.suppress(OSError):
            found[0].rmdir()
