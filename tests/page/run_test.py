"""One run: every number and every cell is the API's, live, and reached without a mouse."""

import pytest
from fake_daemon import advance, play
from looks import CONTRASTS, PAINTED, SPILLED, WIDE_CONTENT
from simulated_runs import MIB, Model, SimulatedRun

MAP = "document.querySelector('.map-grid')"
MAP_READY = f"{MAP} && {MAP}.querySelector('canvas').width > 0 && {MAP}.ariaColCount > 0"
TIP = "document.querySelector('.map-tip').textContent"
CHART = "Chart.getChart(document.querySelectorAll('.chart-box canvas')[{}]).data.datasets"


def small_run(**about):
    """Tight enough for every mode of the menu, and with few plans."""
    model = Model(classes={"Encoder": 3, "Decoder": 2}, base_bytes=60 * MIB,
                  menu=("keep", "selective:1", "selective:2", "offload", "full"))
    return SimulatedRun("small", seed=4, budget=190 * MIB, model=model, lengths=(64, 640),
                        **about)


@pytest.fixture
def open_run(daemon, open_page):
    def open_one(run_id, condition=MAP_READY, **look):
        page = open_page(f"#/runs/{run_id}", **look)
        page.wait_for(condition)
        return page

    return open_one


def rows(page, label):
    """The texts of the table of this label, by row."""
    return page.evaluate(
        f"[...document.querySelectorAll('[aria-label=\"{label}\"] tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))")


def mebibytes(text):
    number, unit = text.split()
    assert unit == "MiB"
    return float(number)


def in_order(plans):
    """As the map shows them: shorter shapes first."""
    return sorted(plans, key=lambda entry: int(entry["key"].rsplit("=", 1)[1]))


def test_every_cell_of_the_map_is_the_plan_s_mode(daemon, open_run, ask):
    run_id = play(daemon, small_run(), 40)
    plans = in_order(ask(f"/v1/runs/{run_id}/plans")["plans"])
    kinds = {mode.split(":")[0] for entry in plans for mode in entry["plan"]["modes"]}
    assert kinds >= {"keep", "selective", "offload"}
    page = open_run(run_id)
    page.evaluate(f"{MAP}.focus()")
    for column, entry in enumerate(plans):
        for row, mode in enumerate(entry["plan"]["modes"]):
            shape = entry["key"].replace("batch=", "").replace(",source=", "\u00d7")
            assert page.evaluate(TIP).startswith(f"{shape}, layer {row} (")
            assert f"): {mode}{entry['reason']}" in page.evaluate(TIP)
            page.press("ArrowDown")
        page.evaluate(f"{MAP}.focus()")
        for _ in entry["plan"]["modes"]:
            page.press("ArrowUp")
        if column + 1 < len(plans):
            page.press("ArrowRight")


@pytest.mark.parametrize("width, scheme", [(360, "dark"), (1600, "light")])
def test_every_cell_is_painted_in_its_mode_s_colour(daemon, open_run, ask, width, scheme):
    run_id = play(daemon, small_run(), 40)
    plans = in_order(ask(f"/v1/runs/{run_id}/plans")["plans"])
    page = open_run(run_id, width=width, scheme=scheme)
    painted = page.evaluate(PAINTED % (len(plans), 5))
    wanted = [[mode.split(":")[0] for mode in entry["plan"]["modes"]] for entry in plans]
    assert painted == wanted


def test_the_cell_that_is_looked_at_stays_its_plan_s(daemon, open_run):
    run = small_run()
    run_id = play(daemon, run, 30)
    page = open_run(run_id)
    page.evaluate(f"{MAP}.focus()")
    page.press("ArrowRight")
    looked_at = page.evaluate(TIP).split(":")[0]
    column = int(page.evaluate("document.querySelector('.map-cell').ariaColIndex"))
    known = set(run.plans)
    run.lengths = (8, 48)  # shorter ones, which come in front
    advance(daemon, run_id, run, 8)
    new = len(set(run.plans) - known)
    wanted = f"document.querySelector('.map-cell').ariaColIndex === '{column + new}'"
    page.wait_for(wanted)
    assert page.evaluate(TIP).split(":")[0] == looked_at


def test_pointer_shows_what_the_keyboard_shows(daemon, open_run):
    run_id = play(daemon, small_run(), 30)
    page = open_run(run_id)
    page.evaluate("document.querySelector('.map').scrollIntoView()")
    x, y = page.evaluate("(() => { const box = document.querySelector('.map-grid canvas')"
                         ".getBoundingClientRect(); return [box.left + 3, box.top + 60] })()")
    page.move(x, y)
    page.wait_for("!document.querySelector('.map-tip').hidden")
    by_pointer = page.evaluate(TIP)
    page.move(5, 5)
    page.wait_for("document.querySelector('.map-tip').hidden")
    page.evaluate(f"{MAP}.focus()")
    assert page.evaluate(TIP) == by_pointer
    spoken = page.evaluate("document.querySelector('.map [aria-live]').textContent")
    assert spoken.startswith(by_pointer.split(")")[0])
    page.press("Escape")
    assert page.evaluate("document.querySelector('.map-tip').hidden")


def test_tab_reaches_the_map_and_shows_its_reason(daemon, open_run, ask):
    run_id = play(daemon, small_run(), 30)
    page = open_run(run_id)
    for _ in range(30):
        page.press("Tab")
        if page.evaluate(f"document.activeElement === {MAP}"):
            break
    plan = in_order(ask(f"/v1/runs/{run_id}/plans")["plans"])[0]
    assert plan["reason"] in page.evaluate(TIP)
    assert page.evaluate("getComputedStyle(document.querySelector('.map-scroll')).outlineStyle"
                         ) == "solid"
    box = page.evaluate("(() => { const box = document.querySelector('.map-tip')"
                        ".getBoundingClientRect(); return [box.left, box.right] })()")
    assert 0 <= box[0] < box[1] <= 1600


def test_charts_draw_the_steps_and_the_change_of_budget(daemon, open_run, ask):
    run = SimulatedRun("charted", seed=6, budget=420 * MIB)
    run_id = play(daemon, run, 60)
    daemon.push(run_id, [{"type": "budget", "seq": 0, "step": 61, "budget_bytes": 350 * MIB}])
    run.set_budget(350 * MIB)
    advance(daemon, run_id, run, 40)
    page = open_run(run_id)
    steps = ask(f"/v1/runs/{run_id}")["steps"]
    assert len(steps) == 100
    drawn = page.evaluate(CHART.format(0) + ".map(set => set.data.map(one => [one.x, one.y]))")
    planned = [step for step in steps if not step["learning"]]

    def pairs(some, name):
        return [[step["step"], pytest.approx(step[name] / MIB)] for step in some]

    assert drawn[0] == pairs(planned, "measured_bytes")
    assert drawn[1] == pairs([step for step in steps if step["learning"]], "measured_bytes")
    assert drawn[3] == pairs(planned, "predicted_bytes")
    assert drawn[4] == [[step["step"], 420 if step["step"] < 61 else 350] for step in steps]
    by_length = page.evaluate(
        CHART.format(2) + ".flatMap(set => set.data.map(one => [one.x, one.y]))")
    times = sorted([int(step["key"].rsplit("=", 1)[1]), step["seconds"] * 1e3] for step in steps)
    assert sorted(by_length) == [[length, pytest.approx(time)] for length, time in times]
    budgets = [row[2] for row in rows(page, "Budgets")]
    assert budgets == ["350.0 MiB", "420.0 MiB"]  # the newest first


def test_tables_say_what_the_api_says(daemon, open_run, ask):
    run_id = play(daemon, small_run(), 40)
    page = open_run(run_id)
    run = ask(f"/v1/runs/{run_id}")
    plans = {entry["key"]: entry for entry in ask(f"/v1/runs/{run_id}/plans")["plans"]}
    page.evaluate("[...document.querySelectorAll('button')]"
                  ".find(one => one.textContent.startsWith('Show all')).click()")
    shown = rows(page, "Cached plans")
    assert len(shown) == len(plans)
    for cells in shown:
        entry = plans["batch={},source={}".format(*cells[0].split("\u00d7"))]
        corner = entry["fits_up_to"][0].replace("batch=", "").replace(",source=", "\u00d7")
        assert cells[2] == corner
        assert mebibytes(cells[3]) == pytest.approx(entry["predicted_peak_bytes"] / MIB, abs=0.051)
        assert cells[7] == str(entry["hits"])
        assert cells[9] == entry["reason"]
    learned = [cells for name in ("Encoder", "Decoder", "The step around the layers")
               for cells in rows(page, f"Learned: {name}")]
    assert len(learned) == len(run["learned"])
    encoder = rows(page, "Learned: Encoder")
    assert encoder[0][:5] == ["forward", "keep", "net, bytes",
                              "7,168 batch\u00b7source  +  32 batch\u00b7source\u00b2", "exact"]
    assert encoder[1][3].startswith("the largest of512  +  10,240 batch\u00b7source")
    counters = page.evaluate("[...document.querySelectorAll('.counters > div')].map(one => "
                             "[one.children[0].textContent, one.children[1].textContent])")
    assert dict(counters)["Plans made"] == str(run["counters"]["plans_made"])
    steps = rows(page, "Last steps")
    assert steps[0][0] == str(run["steps"][-1]["step"])
    assert mebibytes(steps[0][4]) == pytest.approx(
        run["steps"][-1]["measured_bytes"] / MIB, abs=0.051)


def test_of_a_device_it_shows_what_the_allocator_takes(daemon, open_run, ask):
    run_id = play(daemon, small_run(device="cuda:0"), 30)
    page = open_run(run_id)
    steps = ask(f"/v1/runs/{run_id}")["steps"]
    parts = {"Allocated": [step["measured_bytes"] for step in steps]}
    for part in ("active", "reserved", "gap"):
        parts[part.capitalize()] = [step["allocator"][f"{part}_bytes"] for step in steps]
    shown = rows(page, "Device memory")
    assert [row[0] for row in shown] == list(parts)
    for name, last, most, _ in shown:
        assert mebibytes(last) == pytest.approx(parts[name][-1] / MIB, abs=0.051)
        assert mebibytes(most) == pytest.approx(max(parts[name]) / MIB, abs=0.051)


def test_of_a_cpu_it_shows_no_allocator(daemon, open_run, ask):
    run_id = play(daemon, small_run(), 10)
    page = open_run(run_id)
    assert ask(f"/v1/runs/{run_id}")["last"]["allocator"] is None
    assert page.evaluate("document.querySelector('.allocator').checkVisibility()") is False


def test_lives_without_losing_place(daemon, open_run):
    run = small_run()
    run_id = play(daemon, run, 30)
    page = open_run(run_id, width=700, height=700)
    page.evaluate(f"{MAP}.focus()")
    page.press("ArrowRight")
    page.press("ArrowDown")
    page.evaluate("document.querySelectorAll('details')[1].open = true;"
                  "document.querySelector('[aria-label=\"Last steps\"]').scrollLeft = 40;"
                  "window.table = document.querySelector('[aria-label=\"Last steps\"]');"
                  "scrollTo(0, 900)")
    top, cell = page.evaluate("scrollY"), page.evaluate(TIP).split(":")[0]
    advance(daemon, run_id, run, 25)
    page.wait_for("[...document.querySelectorAll('.tiles dd')][0].textContent === '55 / 400'")
    page.wait_for("document.querySelector('[aria-label=\"Last steps\"] td').textContent === '55'")
    assert page.evaluate("scrollY") == top
    assert page.evaluate("table.isConnected && table.scrollLeft") == 40
    assert page.evaluate("[...document.querySelectorAll('details')].map(one => one.open)"
                         ) == [False, True, False]
    assert page.evaluate(f"document.activeElement === {MAP}")
    assert page.evaluate(TIP).split(":")[0] == cell


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_fits_and_is_legible(daemon, open_run, width, scheme):
    run_id = play(daemon, small_run(command="python " + "x" * 300, user="u" * 80), 40)
    page = open_run(run_id, width=width, height=700, scheme=scheme)
    page.evaluate(f"document.querySelectorAll('details').forEach(one => one.open = true);"
                  f"{MAP}.focus()")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(WIDE_CONTENT) == []
    assert page.evaluate(SPILLED) == []
    assert page.evaluate(CONTRASTS) == []


def test_before_the_first_step_it_says_so(daemon, open_run):
    run_id = play(daemon, SimulatedRun("early"), 0)
    page = open_run(run_id, "document.querySelector('.tiles div')")
    text = page.evaluate("document.querySelector('main').innerText")
    assert "No plan yet" in text
    assert "No step yet." in text
    assert "Nothing is learned yet." in text
    assert "NaN" not in text and "undefined" not in text and "null" not in text


def test_a_run_that_is_not_there_is_named(open_page):
    page = open_page("#/runs/nosuch")
    page.expected = ["404"]  # the browser's own line
    page.wait_for("/does not know this run/.test(document.querySelector('main').innerText)")
    assert page.evaluate("document.getElementById('alert').hidden")
    page.evaluate("document.querySelector('.crumb a').click()")
    page.wait_for("document.querySelector('.start')")


def test_five_hundred_plans_of_48_layers(daemon, open_run):
    model = Model(classes={"Encoder": 24, "Decoder": 24}, base_bytes=900 * MIB, hidden=256)
    run = SimulatedRun("deep", seed=2, budget=9000 * MIB, model=model, batch=4, lengths=(8, 4800))
    run_id = play(daemon, run, 700)
    page = open_run(run_id, width=1200)
    assert int(page.evaluate(f"{MAP}.ariaColCount")) == len(run.plans) > 300
    page.evaluate(f"{MAP}.focus()")
    page.press("End", control=True)
    longest = max(run.plans)
    assert page.evaluate(TIP).startswith(f"4\u00d7{longest}, layer 47 (Decoder)")
    assert page.evaluate("document.querySelector('.map-scroll').scrollLeft") > 0
