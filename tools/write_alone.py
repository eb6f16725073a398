"""Writes copies of the notebooks whose links work from anywhere, for Colab, Kaggle and Binder.

Usage: python -m tools.write_alone https://github.com/OWNER/REPO [BRANCH]

The copies belong on a separate branch, "alone" by default. Links between them stay on this branch;
all other links point to the branch main.
"""

import re
import sys
from pathlib import Path

import nbformat

from twelve_lab.course import pages

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
PLACES = {
    "Colab": "https://colab.research.google.com/github/{name}/blob/{branch}/{path}",
    "Kaggle": "https://kaggle.com/kernels/welcome?src={address}/blob/{branch}/{path}",
    "Binder": "https://mybinder.org/v2/gh/{name}/main?labpath={path}",
}


def rewrite(notebook: nbformat.NotebookNode, path: str, address: str, branch: str) -> None:
    """Make each relative link absolute, and add a line of links to the first cell.

    Args:
        notebook: The notebook, modified in place.
        path: Path in the project, with forward slashes.
        address: URL of the project on GitHub.
        branch: Branch of the copies.

    Raises:
        FileNotFoundError: If the target of a link does not exist.
    """

    def absolute(link: re.Match) -> str:
        target = (ROOT / path).parent / link[1]
        where = target.resolve(strict=True).relative_to(ROOT).as_posix()
        kind = "tree" if target.is_dir() else "blob"
        return f"]({address}/{kind}/{branch if where.endswith('.ipynb') else 'main'}/{where}"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(absolute, cell.source)
    name = address.removeprefix("https://github.com/")
    values = {"name": name, "address": address, "branch": branch, "path": path}
    links = (f"[{place}]({link.format(**values)})" for place, link in PLACES.items())
    notebook.cells[0].source += f"\n\n<small>Open in {' · '.join(links)}</small>"


def main(address: str, branch: str = "alone") -> None:
    """Write the copies into build/alone."""
    folder = ROOT / "build" / "alone"
    for page in pages(ROOT):
        path = page.relative_to(ROOT)
        notebook = nbformat.read(page, as_version=4)
        rewrite(notebook, path.as_posix(), address.rstrip("/"), branch)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, folder / path)
    print(f"Push the files of {folder} to the branch {branch} of {address}.")


if __name__ == "__main__":
    if not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/?", "".join(sys.argv[1:2])):
        sys.exit(__doc__)
    main(*sys.argv[1:3])
