"""How long the page takes with many runs, over pudicad: for figures, not a test.

    python3 tests/support/time_page.py build/release/bin/pudicad [RUNS]

Prints, for the overview of all runs and for the page of one, the time from the address to the last
card or the plan map (median and worst of five), and the processor time of the page for a second of
its life (five seconds with a poll each).
"""

import statistics
import sys

from chromium import Chromium
from fake_daemon import play
from real_daemon import RealDaemon
from simulated_runs import SimulatedRun

REPEATS = 5
WATCH = """(() => {
  const look = () => {
    if (!window.shownAt && document.querySelectorAll(%r).length >= %d) {
      requestAnimationFrame(() => setTimeout(() => { window.shownAt ??= performance.now() }));
    }
  };
  new MutationObserver(look).observe(document, {childList: true, subtree: true});
})()"""


def task_seconds(page):
    metrics = page.call("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "TaskDuration")


def measure(browser, address, selector, count):
    """Milliseconds until `count` elements are shown, sorted; processor time a second of life."""
    times = []
    for _ in range(REPEATS):
        page = browser.page()
        page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH % (selector, count))
        page.open(address)
        times.append(page.wait_for("window.shownAt"))
        if len(times) < REPEATS:
            page.close()
    page.call("Performance.enable")
    before = task_seconds(page)
    page.evaluate("new Promise((done) => setTimeout(done, 5000))")
    share = (task_seconds(page) - before) / 5
    page.close()
    return sorted(times), share


def main():
    program, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with RealDaemon(program) as daemon, Chromium() as browser:
        for number in range(runs):
            last = play(daemon, SimulatedRun(f"run-{number:03d}", seed=number), 40)
        for name, route, selector, count in (
                (f"overview of {runs} runs", "#/", ".run-card", runs),
                ("one run", f"#/runs/{last}", ".map-grid[aria-colcount]", 1)):
            times, share = measure(browser, f"{daemon.address}/{route}", selector, count)
            print(f"{name}: {statistics.median(times):.0f} ms to the last of it (worst "
                  f"{times[-1]:.0f} ms), {share * 1e3:.0f} ms of processor time a second")


if __name__ == "__main__":
    main()
