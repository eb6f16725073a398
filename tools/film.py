"""Film the live page for the README: drag one number and watch every number that depends on it.

Usage: python -m tools.film [FILE]

FILE is docs/live.gif if none is named. The format is GIF: GitHub lets
readers pause a GIF, and pauses it for readers who prefer reduced motion.
"""

import io
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Page

from tools import browser
from tools.command import run
from twelve_lab import example
from twelve_lab.explorer import write_explorer

FILM = Path("docs/live.gif")
# The index of the first number of "dog" among the draggable numbers; a pixel is 0.01.
DIAL, START, END, STEP = 6, 0.7, 2.0, 0.1
WIDTH, ROOM = 920, 8  # of the window, and of the filmed area
BEFORE, DURING, AFTER = 1500, 180, 2600  # milliseconds
POINTER = ((0, 0), (0, 19), (5, 15), (8, 22), (11, 21), (8, 14), (14, 14))
SAID = """() => [...document.querySelectorAll("#foot > :is(:first-child, :last-child)")]
  .map((e) => e.innerText)"""


def frames(tab: Page, page: Path) -> Iterator[tuple[Image.Image, list[str], int]]:
    """Drag a number on the live page, and take a screenshot after each step.

    Args:
        tab: An empty tab.
        page: The live page.

    Yields:
        The screenshot, the loss, the last verdict, and the duration of the frame in milliseconds.
    """
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    tab.set_viewport_size({"width": WIDTH, "height": 1300})
    tab.goto(page.resolve().as_uri())
    tab.locator("body[data-ready]").wait_for()
    walk = tab.locator("#walk").bounding_box()
    dial = tab.locator("#words input.n").nth(DIAL).bounding_box()
    clip = {"x": walk["x"] - ROOM, "y": walk["y"] - ROOM,
            "width": walk["width"] + 2 * ROOM, "height": walk["height"] + 2 * ROOM}  # fmt: skip
    x, y = dial["x"] + dial["width"] / 2, dial["y"] + 2 * dial["height"] / 3
    tab.mouse.move(x, y)
    tab.mouse.down()
    steps = round((END - START) / STEP)
    for step in range(steps + 1):
        tab.mouse.move(x + 100 * STEP * step, y)
        tab.evaluate("() => new Promise(requestAnimationFrame)")
        image = Image.open(io.BytesIO(tab.screenshot(clip=clip))).convert("RGB")
        left, top = x + 100 * STEP * step - clip["x"], y - clip["y"]
        pointer = [(left + right, top + down) for right, down in POINTER]
        ImageDraw.Draw(image).polygon(pointer, fill="black", outline="white")
        yield image, tab.evaluate(SAID), {0: BEFORE, steps: AFTER}.get(step, DURING)
    tab.mouse.up()


def told(before: list[str], after: list[str]) -> str:
    """Describe the film.

    Args:
        before: The loss and the last verdict at its start.
        after: The loss and the last verdict at its end.
    """
    verdicts = (f"{verdict} with a {loss}" for loss, verdict in (before, after))
    return (
        f"The live page: the first number of dog is dragged from {START} to {END}. The attention, "
        "memory, output, probabilities and loss that depend on it change at once, each marked in "
        f"its corner. The last word was {' and is now '.join(verdicts)}."
    )


def write(tab: Page, file: Path) -> None:
    """Film the live page of the running example.

    Args:
        tab: An empty tab.
        file: Destination.

    Raises:
        OSError: If the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = {"3 heads": example.trace(loss=True, on="cpu")}
        page = write_explorer(Path(folder) / "page.html", runs, example.words)
        images, texts, durations = zip(*frames(tab, page), strict=True)
    # One palette for all frames; otherwise unchanged parts would flicker.
    palette = images[-1].quantize(256, dither=Image.Dither.NONE)
    first, *others = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    first.save(
        file, save_all=True, append_images=others, duration=durations, loop=0,
        comment=told(texts[0], texts[-1]).encode(),
    )  # fmt: skip


def main(file: Path) -> list[str]:
    """Film the page in a browser of its own."""
    with browser.launched() as running:
        write(running.new_page(), file)
    return [f"written: {file}"]


if __name__ == "__main__":
    sys.exit(run(main, FILM, __doc__.splitlines()[0]))
