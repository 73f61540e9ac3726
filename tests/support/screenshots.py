"""Takes the screenshots of docs/page.md, of real training runs under pudicad:

    python3 tests/support/screenshots.py build/release/bin docs/images

Takes some minutes, more where the machine is busy. Where pngquant is installed the files are made
smaller.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from chromium import Chromium
from real_daemon import RealDaemon
from waiting import wait_for

WIDTHS = {1600: 1000, 360: 780}  # width -> height of the window
SETTLED = """new Promise(done =>
  requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"""
CARDS = "document.querySelectorAll('.run-card').length === 4"
MAP = "document.querySelector('.map-grid')?.ariaColCount > 0"
SLIDER = "document.getElementById('budget-slider')"
OTHER_BUDGET = f"""(() => {{ {SLIDER}.value = String(0.85 * Number({SLIDER}.value));
  {SLIDER}.dispatchEvent(new Event('input')) }})()"""
AT_REST = "!document.querySelector('[aria-label=\"Another budget\"]').ariaBusy"
# (model, share of the way from the floor to keeping all, group); the last one has just begun.
RUNS = (("mini,hidden=32,layers=10", "0.55", ""), ("mini,hidden=48,layers=4", "0.7", "shared"),
        ("mini,hidden=24,layers=8,attention=math", "0.5", "shared"),
        ("mini,hidden=64,layers=6", "0.4", ""))
STEPS = "1200"
STEPS_BEFORE_THE_CUT, STEPS_AFTER = 70, 90
LONG_S = 900

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
    page.wait_for(f"{SLIDER}.checkVisibility()")
    page.evaluate(OTHER_BUDGET)
    page.wait_for(AT_REST)
    page.evaluate("document.querySelector('.map-grid').focus({preventScroll: true})")
    for key in ["End", *["ArrowLeft"] * 9, "ArrowDown"]:
        page.press(key)
    page.wait_for("!/asking why/.test(document.querySelector('.map-tip').textContent)")
    # On a telephone the page is long: the part with the plan map.
    if width < 600:
        top = page.evaluate("document.querySelector('.map').closest('.panel')"
                            ".getBoundingClientRect().top + scrollY - 16")
        head = above(page, ".chart-box")
        save(page, folder / f"page-run-{suffix}.png", look, (0, 0, width, head + 60))
        save(page, folder / f"page-map-{suffix}.png", look, (0, top, width, 800))
        return
    save(page, folder / f"page-run-{suffix}.png", look, (0, 0, width, above(page, ".map") + 40))


@contextlib.contextmanager
def trainings(programs, daemon, folder):
    """start(number) begins a run of RUNS and returns its id; all end with the block."""
    running = []

    def start(number):
        model, share, group = RUNS[number]
        place = folder / str(number)
        place.mkdir()
        (place / "pudica.json").write_text(json.dumps({"daemon": {"group": group}}))
        known = {run["id"] for run in daemon.ask("GET", "/v1/runs")["runs"]}
        running.append(subprocess.Popen(
            [str(programs / "pudica-train"), "--model", model, "--batch", "2", "--steps", STEPS,
             "--max-length", "640", "--threads", "1", "--policy", "pudica", "--budget", share,
             "--daemon", "--clock", "operators", "--config", "pudica.json", "--out", "out"],
            cwd=place, env={**os.environ, "PUDICA_SOCKET": str(daemon.socket)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        def arrived():
            return {run["id"] for run in daemon.ask("GET", "/v1/runs")["runs"]} - known

        return wait_for(f"run {number}", arrived, LONG_S).pop()

    try:
        yield start
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def steps_of(daemon, run_id):
    runs = {run["id"]: run for run in daemon.ask("GET", "/v1/runs")["runs"]}
    return runs[run_id]["step"] or 0


def train(daemon, start):
    """Brings the runs to where they are worth a picture; the id of the one that is looked at."""
    run_id = start(0)
    others = [start(1), start(2)]
    budgets = sum(daemon.ask("GET", f"/v1/runs/{one}")["budget_bytes"] for one in others)
    daemon.ask("PUT", "/v1/groups/shared", {"total": budgets * 9 // 10})
    wait_for("the first steps", lambda: steps_of(daemon, run_id) >= STEPS_BEFORE_THE_CUT, LONG_S)
    budget = daemon.ask("GET", f"/v1/runs/{run_id}")["budget_bytes"]
    daemon.ask("PUT", f"/v1/runs/{run_id}/budget", {"budget": budget * 8 // 10})
    wanted = STEPS_BEFORE_THE_CUT + STEPS_AFTER
    wait_for("the steps after", lambda: steps_of(daemon, run_id) >= wanted, LONG_S)
    fresh = start(3)
    wait_for("its first step", lambda: steps_of(daemon, fresh) > 0, LONG_S)
    return run_id


def main(programs, folder):
    folder.mkdir(parents=True, exist_ok=True)
    with (tempfile.TemporaryDirectory() as scratch, Chromium() as browser,
          RealDaemon(str(programs / "pudicad")) as daemon,
          trainings(programs, daemon, pathlib.Path(scratch)) as start):
        page = browser.page()
        page.open(daemon.address)
        page.wait_for("document.querySelector('.start') && "
                      "!document.querySelector('.start').hidden")
        save(page, folder / "page-empty.png", {"width": 1600}, (0, 0, 1600, 660))
        run_id = train(daemon, start)
        for width, height in WIDTHS.items():
            for scheme in ("light", "dark"):
                look = {"width": width, "height": height, "scheme": scheme}
                page = browser.page(**look)
                views(page, daemon.address, run_id, folder, look)
                assert page.problems == [], page.problems
                page.close()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
