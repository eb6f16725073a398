"""Runs notebooks from top to bottom and stores outputs that are the same on every machine.

Usage: python tools/run_notebooks.py notebooks/*.ipynb

Tags and collapsed outputs are kept. Each notebook runs in its own folder.
"""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
# Cell metadata that depends on the editor or the time.
VOLATILE = ("collapsed", "execution", "ExecuteTime", "scrolled", "trusted", "vscode")


def run(path: Path) -> None:
    """Execute one notebook in a fresh kernel and write it back.

    Args:
        path: Path of the notebook. The file is unchanged if a cell raises.

    Raises:
        CellExecutionError: If a cell raises.
    """
    notebook = nbformat.read(path, as_version=4)
    os.environ["TWELVE_PROGRESS"] = ""  # ignore the learner's progress
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=120,
        # The kernel sends a stream in chunks that depend on timing.
        coalesce_streams=True,
        record_timing=False,
        # The kernel would log that its loopback connection is not encrypted.
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    notebook.metadata = NOTEBOOK_METADATA
    for cell in notebook.cells:
        for key in VOLATILE:
            cell.metadata.pop(key, None)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, flush=True)
        run(Path(name))
