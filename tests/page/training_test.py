"""The page over pudicad and a real training run: what it shows is what the run measured."""

import json
import os
import subprocess
import urllib.request

import chromium
import pytest
from looks import CONTRASTS, PAINTED
from real_daemon import RealDaemon
from waiting import wait_for

PUDICAD = os.environ.get("PUDICAD", "")
PUDICA_TRAIN = os.environ.get("PUDICA_TRAIN", "")
STEPS = 40
OPTIONS = ["--model", "mini,hidden=32,layers=4", "--threads", "1", "--batch", "2", "--steps",
           str(STEPS), "--policy", "pudica", "--budget", "0.3", "--daemon", "--clock",
           "operators"]


@pytest.fixture
def trained(tmp_path):
    """A daemon under which one run has ended: (daemon, run's id)."""
    if not PUDICAD or not PUDICA_TRAIN:
        pytest.skip("PUDICAD and PUDICA_TRAIN do not name programs")
    if chromium.find() is None:
        pytest.skip("no Chromium is installed (Debian package chromium)")
    with RealDaemon(PUDICAD) as daemon:
        environment = {**os.environ, "PUDICA_SOCKET": str(daemon.socket)}
        done = subprocess.run([PUDICA_TRAIN, *OPTIONS, "--out", str(tmp_path / "out")], text=True,
                              env=environment, capture_output=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr

        def ended():
            runs = daemon.ask("GET", "/v1/runs?all=true")["runs"]
            return runs[0] if runs and runs[0]["state"] == "ended" else None

        yield daemon, wait_for("the run to end", ended)["id"]


def get(daemon, path):
    with urllib.request.urlopen(daemon.address + path, timeout=30) as answer:
        return json.load(answer)


def answers_questions(page, daemon, run, plans):
    """The tip of the last plan's first layer, and the slider at nine tenths of the budget."""
    path = f"/v1/runs/{run['id']}/explain?shape={plans[-1]['key']}"
    page.evaluate("document.querySelector('.map-grid').focus()")
    page.press("End")
    why = get(daemon, path)["layers"][0]["why"]
    page.wait_for(f"document.querySelector('.map-tip').textContent.includes({json.dumps(why)})")
    page.press("Escape")
    slider = "document.getElementById('budget-slider')"
    page.wait_for(f"{slider}.value === '{run['budget_bytes']}'")
    budget = page.evaluate(f"(() => {{ {slider}.value = String(0.9 * {run['budget_bytes']});"
                           f"{slider}.dispatchEvent(new Event('input'));"
                           f"return Number({slider}.value) }})()")
    table = "document.querySelector('[aria-label=\"Another budget\"]')"
    page.wait_for(f"!{table}.ariaBusy")
    rows = page.evaluate(f"[...{table}.querySelectorAll('tbody tr')]"
                         ".map(row => [...row.cells].map(cell => cell.textContent))")
    assert [row[0].split(":")[0] for row in rows] == ["longest", "median", "shortest"]
    for row in rows:
        shape = row[0].split(": ")[1].replace("\u00d7", "x")
        path = f"/v1/runs/{run['id']}/explain?shape={shape}&budget={budget}"
        modes = {layer["mode"] for layer in get(daemon, path)["layers"]} - {"keep"}
        assert all(f"{mode}: " in row[4] for mode in modes)
        assert (row[4] == "none") == (not modes)


def test_shows_a_training_run(browser, trained):
    daemon, run_id = trained
    run = get(daemon, f"/v1/runs/{run_id}")
    plans = get(daemon, f"/v1/runs/{run_id}/plans")["plans"]
    assert len(run["steps"]) == STEPS and plans and run["learned"]
    page = browser.page(scheme="dark")
    page.open(f"{daemon.address}/#/runs/{run_id}")
    page.wait_for("document.querySelector('.map-grid')?.ariaColCount > 0")
    assert page.evaluate("document.querySelector('.run-title .state').textContent") == "ended: ok"
    assert page.evaluate("document.querySelector('.tiles dd').textContent") == f"{STEPS} / {STEPS}"
    measured = page.evaluate(
        "Chart.getChart(document.querySelector('.chart-box canvas')).data.datasets.slice(0, 3)"
        ".flatMap(set => set.data.map(one => [one.x, one.step.measured_bytes]))")
    assert sorted(measured) == [[step["step"], step["measured_bytes"]] for step in run["steps"]]
    keys = page.evaluate("[...document.querySelectorAll('[aria-label=\"Cached plans\"] tbody tr')]"
                         ".length")
    assert keys == min(len(plans), 12)

    def volume(entry):
        product = 1
        for part in entry["key"].split(","):
            product *= int(part.split("=")[1])
        return product

    ordered = sorted(plans, key=lambda entry: (volume(entry), entry["plan"]["id"]))
    layers = len(run["structure"]["layers"])
    painted = page.evaluate(PAINTED % (len(plans), layers))
    assert painted == [[mode.split(":")[0] for mode in entry["plan"]["modes"]]
                       for entry in ordered]
    rows = page.evaluate("document.querySelectorAll('details tbody tr').length")
    assert rows == len(run["learned"])
    assert page.evaluate(CONTRASTS) == []
    answers_questions(page, daemon, run, ordered)
    if os.environ.get("PUDICA_SCREENSHOT"):
        page.screenshot(os.environ["PUDICA_SCREENSHOT"])
    page.look(width=820, scheme="dark")
    page.open(f"{daemon.address}/#/")
    models = "document.querySelector('[aria-label=\"Learned models\"]')"
    page.wait_for(f"{models}?.querySelectorAll('tbody tr').length > 0")
    overhang = page.evaluate(f"{models}.scrollWidth - {models}.clientWidth")
    assert overhang == 0, "a long fingerprint leaves the other columns in sight"
    assert page.problems == []
    strangers = [url for url in page.requests if not url.startswith(daemon.address + "/")]
    assert [url for url in strangers if not url.startswith("about:")] == []
    page.close()
