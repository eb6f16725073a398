"""Times the import of the package, in fresh processes."""

import json
import subprocess
import sys
from typing import NamedTuple

PROGRAM = """
import json, sys, time
import torch
start = time.process_time()
import twelve
print(json.dumps([time.process_time() - start, "matplotlib" in sys.modules]))
"""


class Import(NamedTuple):
    """What `import twelve` costs once torch is there.

    Attributes:
        milliseconds: CPU time, one number for each process.
        matplotlib: Whether it came along.
    """

    milliseconds: list[float]
    matplotlib: bool


def import_times(processes: int) -> Import:
    """Import torch, then the package, and time the second.

    Args:
        processes: How many times, each in a process of its own.

    Raises:
        subprocess.CalledProcessError: If a process fails.
    """
    command = [sys.executable, "-c", PROGRAM]
    found = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for _ in range(processes)
    ]
    return Import([1000 * seconds for seconds, _ in found], any(drawn for _, drawn in found))
