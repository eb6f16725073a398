"""Record the live page for the README: train the model, then break it with a single number.

Usage: python -m tools.film [FILE]

FILE defaults to docs/live.gif. The format is GIF because GitHub lets readers pause a GIF, and
pauses it for readers who prefer reduced motion.
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
from twelve_lab.cli.commands import write_live

FILM = Path("docs/live.gif")
RATE, STEPS = 0.5, 20  # learning rate and number of optimizer steps
# The number of fish to drag afterwards, in steps of 0.2; a pixel is 0.01.
NUMBER, DRAGS = ("src_embedding.weight", [3, 2]), 6
WINDOW, SIZE = (1440, 890), (1020, 630)  # pixels of the page, and of the animation
BEFORE, DURING, AFTER = 1500, 180, 2600  # milliseconds
POINTER = ((0, 0), (0, 19), (5, 15), (8, 22), (11, 21), (8, 14), (14, 14))
SAID = """() => [...document.querySelectorAll("p.sentence .answer, #stage .loss b")]
  .map((e) => e.innerText.replaceAll("\\n", " "))"""


def frames(tab: Page, page: Path) -> Iterator[tuple[Image.Image, list[str], int]]:
    """Train the model on the live page, then drag a number; take a screenshot after each step.

    Args:
        tab: An empty tab.
        page: The live page.

    Yields:
        The screenshot, the generated words and the loss, and the duration in milliseconds.
    """
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    tab.set_viewport_size({"width": WINDOW[0], "height": WINDOW[1]})
    tab.goto(page.resolve().as_uri())
    tab.locator("body[data-ready]").wait_for()
    tab.locator(".rate").fill(str(RATE))
    teach = tab.get_by_role("button", name="One step", exact=True)
    place = tab.evaluate("number => twelve.place(...number)", list(NUMBER))
    number = tab.locator(f"#map .n[data-at='{place}']")
    for step in range(STEPS + 1):
        if step:
            teach.click()
        yield _shot(tab, teach.bounding_box(), {0: BEFORE, STEPS: BEFORE}.get(step, DURING))
    box = number.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.down()
    for step in range(1, DRAGS + 1):
        box["x"] += 20
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        yield _shot(tab, box, AFTER if step == DRAGS else DURING)
    tab.mouse.up()


def _shot(tab: Page, under: dict, duration: int) -> tuple[Image.Image, list[str], int]:
    """Take a screenshot, and draw a pointer over the middle of a box."""
    tab.evaluate("() => new Promise(done => setTimeout(() => requestAnimationFrame(done), 50))")
    image = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    left, top = under["x"] + under["width"] / 2, under["y"] + under["height"] / 2
    pointer = [(left + right, top + down) for right, down in POINTER]
    ImageDraw.Draw(image).polygon(pointer, fill="black", outline="white")
    return image.resize(SIZE, Image.Resampling.LANCZOS), tab.evaluate(SAID), duration


def told(before: list[str], taught: list[str], after: list[str]) -> str:
    """Describe the animation by the generated words and the loss at three moments."""
    first, second, third = ("“{} {}” with a loss of {}".format(*moment) for moment in
                            (before, taught, after))  # fmt: skip
    return (
        f"The live page: two lanes of numbers. The model should write “fish dog” and writes "
        f"{first}. After {STEPS} steps of learning it writes {second}. Then one number of fish is "
        f"dragged, threads lead to every number that changes, and it writes {third}."
    )


def write(tab: Page, file: Path) -> None:
    """Record the live page of the running example.

    Args:
        tab: An empty tab.
        file: Destination.

    Raises:
        OSError: If the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        page = write_live(Path(folder) / "page.html")
        images, texts, durations = zip(*frames(tab, page), strict=True)
    # One palette for all frames; otherwise unchanged parts would flicker.
    both = Image.new("RGB", (SIZE[0], 2 * SIZE[1]))
    both.paste(images[0], (0, 0))
    both.paste(images[-1], (0, SIZE[1]))
    palette = both.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    first, *others = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    first.save(
        file, save_all=True, append_images=others, duration=durations, loop=0,
        comment=told(texts[0], texts[STEPS], texts[-1]).encode(),
    )  # fmt: skip


def main(file: Path) -> list[str]:
    """Record the page in a new browser."""
    with browser.launched() as running:
        write(running.new_page(), file)
    return [f"written: {file}"]


if __name__ == "__main__":
    sys.exit(run(main, FILM, __doc__.splitlines()[0]))
