"""Takes the screenshots of docs/page.md: python3 tests/support/screenshots.py FOLDER

The runs are those of showcase.py, on the stand-in daemon. Where pngquant is installed the files are
made smaller.
"""

import pathlib
import shutil
import subprocess
import sys

from chromium import Chromium
from fake_daemon import FakeDaemon
from showcase import share_device, showcase

WIDTHS = {1600: 1000, 360: 780}  # width -> height of the window
SETTLED = """new Promise(done =>
  requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"""
CARDS = "document.querySelectorAll('.run-card').length === 4"
MAP = "document.querySelector('.map-grid')?.ariaColCount > 0"


def save(page, path, look, clip=None):
    # In a window that holds all of it: what lies outside of one is not always painted.
    whole = page.evaluate("document.documentElement.scrollHeight")
    page.look(**{**look, "height": int(clip[1] + clip[3]) if clip else whole})
    page.evaluate("scrollTo(0, 0)")
    page.wait_for(SETTLED)
    page.evaluate("document.getAnimations().forEach(one => one.finish())")
    page.screenshot(path, clip)
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--skip-if-larger", "--output", str(path), "128",
                        str(path)], check=False)
    print(f"{path}: {path.stat().st_size // 1000} kB")


def above(page, selector):
    """The page's height down to the element's lower end."""
    return page.evaluate(f"Math.ceil(document.querySelector('{selector}')"
                         ".getBoundingClientRect().bottom + scrollY)")


def views(page, address, run_id, folder, look):
    width = look["width"]
    suffix = f"{width}-{look['scheme']}"
    page.open(f"{address}/#/")
    page.wait_for(CARDS)
    page.wait_for("document.querySelectorAll('.side table').length === 2")
    save(page, folder / f"page-overview-{suffix}.png", look)
    page.open(f"{address}/#/runs/{run_id}")
    page.wait_for(MAP)
    page.evaluate("document.querySelector('.map-grid').focus({preventScroll: true})")
    for key in ["End", *["ArrowLeft"] * 9, "ArrowDown"]:
        page.press(key)
    # On a telephone the page is long: the part with the plan map.
    top = 0
    if width < 600:
        top = page.evaluate("document.querySelector('.pair').nextElementSibling"
                            ".getBoundingClientRect().top + scrollY - 16")
        head = above(page, ".chart-box")
        save(page, folder / f"page-run-{suffix}.png", look, (0, 0, width, head + 60))
        save(page, folder / f"page-map-{suffix}.png", look, (0, top, width, 700))
        return
    save(page, folder / f"page-run-{suffix}.png", look, (0, 0, width, above(page, ".map") + 40))


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with FakeDaemon() as daemon, Chromium() as browser:
        page = browser.page()
        page.open(daemon.address)
        page.wait_for("document.querySelector('.start') && "
                      "!document.querySelector('.start').hidden")
        save(page, folder / "page-empty.png", {"width": 1600}, (0, 0, 1600, 660))
        runs = showcase(daemon)
        share_device(daemon, runs)
        for width, height in WIDTHS.items():
            for scheme in ("light", "dark"):
                look = {"width": width, "height": height, "scheme": scheme}
                page = browser.page(**look)
                views(page, daemon.address, runs[0][0], folder, look)
                assert page.problems == [], page.problems
                page.close()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
