"""The overview: what it lists, how it follows, what it looks like and how it is reached."""

import pytest
from fake_daemon import FakeDaemon, advance, play
from looks import CONTRASTS, SPILLED, WIDE_CONTENT
from simulated_runs import MIB, Model, SimulatedRun

CARDS = "document.querySelectorAll('.run-card').length"
NAMES = "[...document.querySelectorAll('.run-name a')].map(one => one.textContent)"


def facts(page, run_id):
    return dict(page.evaluate(
        f"[...document.querySelectorAll('[data-run=\"{run_id}\"] .facts > div')]"
        ".map(one => [one.querySelector('dt').textContent, one.querySelector('dd').textContent])"))


def test_newcomer_is_told_what_to_do_and_sees_the_first_run_arrive(daemon, open_page):
    page = open_page()
    page.wait_for("document.querySelector('.start') && !document.querySelector('.start').hidden")
    commands = page.evaluate(
        "[...document.querySelectorAll('.command')].map(one => one.textContent)")
    assert commands == ["pudica-train --daemon", "pudica run -- python train.py", "pudica doctor"]
    play(daemon, SimulatedRun("first"), 3)
    page.wait_for(f"{CARDS} === 1 && document.querySelector('.start').hidden")
    assert page.evaluate(NAMES) == ["first"]


def test_where_only_ended_runs_are_kept_it_says_so_and_shows_them(daemon, open_page):
    for number in range(5):
        run_id = play(daemon, SimulatedRun(f"run-{number}", seed=number), 2)
        daemon.push(run_id, [{"type": "end", "status": "ok"}])
    page = open_page()
    page.wait_for("document.querySelector('.start') && !document.querySelector('.start').hidden")
    said = page.evaluate("document.querySelector('.start').innerText")
    assert said.startswith("No run is live") and "5 runs of before are kept." in said
    page.evaluate("document.querySelector('.start button').click()")
    page.wait_for(f"{CARDS} === 5 && document.querySelector('.start').hidden")
    assert page.evaluate("document.querySelector('.check input').checked")


def test_lists_what_the_api_lists(daemon, open_page, ask):
    for number in range(3):
        play(daemon, SimulatedRun(f"run-{number}", seed=number, budget=(400 + 60 * number) * MIB),
             30)
    page = open_page()
    page.wait_for(f"{CARDS} === 3")
    runs = ask("/v1/runs")["runs"]
    assert page.evaluate(NAMES) == [run["name"] for run in runs]
    for run in runs:
        shown = facts(page, run["id"])
        assert shown["Steps"] == "30 / 400"
        assert shown["Recomputed"] == (f"{run['recomputed_share'] * 100:.0f} % of the time, "
                                       f"{run['recomputed_calls_share'] * 100:.0f} % of calls")
        assert shown["Revocations"] == str(run["revocations"])
        assert shown["Overruns"] == "0"
        bar = page.evaluate(f"document.querySelector('[data-run=\"{run['id']}\"] .bar-track')"
                            ".getAttribute('aria-label')")
        assert f"measured peak {run['peak_bytes'] / MIB:.1f} MiB" in bar
        assert f"last step {run['last']['measured_bytes'] / MIB:.1f} MiB" in bar
        assert f"budget {run['budget_bytes'] / MIB:.1f} MiB" in bar


def test_bar_is_to_scale(daemon, open_page, ask):
    play(daemon, SimulatedRun("scaled", budget=400 * MIB), 40)
    page = open_page()
    page.wait_for(f"{CARDS} === 1")
    run = ask("/v1/runs")["runs"][0]
    place = ("(name, side) => { const box = document.querySelector('.bar-track')"
             ".getBoundingClientRect(); const part = document.querySelector('.bar-track ' + name)"
             ".getBoundingClientRect(); return (part[side] - box.left) / box.width }")
    page.evaluate("document.getAnimations().forEach(one => one.finish())")
    budget, peak = (page.evaluate(f"({place})('{name}', '{side}')")
                    for name, side in ((".bar-budget", "left"), (".bar-peak", "right")))
    assert peak / budget == pytest.approx(run["peak_bytes"] / run["budget_bytes"], abs=0.02)


def test_names_are_never_markup(daemon, open_page):
    name = "<img src=//example.invalid/x onerror=alert(1)><b>bold</b>"
    model = Model(name="<i>model</i>")
    play(daemon, SimulatedRun(name, user="<script>alert(2)</script>", model=model), 10)
    page = open_page()
    page.wait_for(f"{CARDS} === 1")
    assert page.evaluate(NAMES) == [name]
    made = "document.querySelectorAll('main img, main b, main i, main script').length"
    assert page.evaluate(made) == 0


def test_updates_keep_focus_and_scroll(daemon, open_page):
    runs = [SimulatedRun(f"run-{number}", seed=number) for number in range(12)]
    ids = [play(daemon, run, 8) for run in runs]
    page = open_page(height=600)
    page.wait_for(f"{CARDS} === 12")
    page.evaluate(f"document.querySelector('[data-run=\"{ids[9]}\"] a').focus();"
                  "window.marked = document.activeElement; window.top = scrollTo(0, 333)")
    advance(daemon, ids[9], runs[9], 5)
    page.wait_for(f"document.querySelector('[data-run=\"{ids[9]}\"] dd').textContent"
                  " === '13 / 400'")
    assert page.evaluate("document.activeElement === window.marked && marked.isConnected")
    assert page.evaluate("scrollY") == 333


def test_ended_runs_on_request_and_filter(daemon, open_page):
    for number in range(8):
        run_id = play(daemon, SimulatedRun(f"run-{number}", seed=number), 3)
        if number == 4:
            daemon.push(run_id, [{"type": "end", "status": "oom"}])
    page = open_page()
    page.wait_for(f"{CARDS} === 7")
    page.evaluate("document.querySelector('.check input').click()")
    page.wait_for(f"{CARDS} === 8")
    assert page.evaluate("document.querySelector('[data-status=oom]').textContent") == "ended: oom"
    page.evaluate("(() => { const box = document.querySelector('input[type=search]');"
                  "box.value = 'RUN-6'; box.dispatchEvent(new Event('input')) })()")
    page.wait_for(f"{CARDS} === 1")
    assert page.evaluate(NAMES) == ["run-6"]


def test_two_hundred_runs(browser):
    with FakeDaemon() as served:
        for number in range(200):
            play(served, SimulatedRun(f"run-{number:03d}", seed=number), 2)
        page = browser.page()
        page.open(served.address)
        page.wait_for(f"{CARDS} === 200")
        assert page.problems == []
        page.close()


def test_says_when_the_daemon_is_gone_and_when_it_is_back(browser):
    with FakeDaemon() as served:
        play(served, SimulatedRun("steady"), 4)
        runs = served.runs
        page = browser.page()
        page.open(served.address)
        page.wait_for(f"{CARDS} === 1")
    page.wait_for("!document.getElementById('alert').hidden")
    said = page.evaluate("document.getElementById('alert-text').textContent")
    assert said.startswith("Daemon unreachable since ")
    assert page.evaluate("document.title").startswith("(unreachable)")
    # Ever rarer: a pause of two seconds and more comes after the first failures.
    page.wait_for(r"/again in [2-9] s/.test(document.getElementById('link-text').textContent)")
    assert page.evaluate(NAMES) == ["steady"]
    with FakeDaemon(port=served.port) as again:
        again.runs = runs
        page.evaluate("document.getElementById('alert-retry').click()")
        page.wait_for("document.getElementById('alert').hidden")
    page.close()


def test_keyboard_reaches_a_run(daemon, open_page):
    play(daemon, SimulatedRun("reachable"), 12)
    page = open_page()
    page.wait_for(f"{CARDS} === 1")
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(6):
        page.press("Tab")
        if page.evaluate("document.activeElement.matches('.run-name a')"):
            break
    outline = page.evaluate("getComputedStyle(document.activeElement, '::after').outlineStyle")
    assert outline == "solid"
    page.press("Enter")
    page.wait_for("document.activeElement.tagName === 'H1' && location.hash.startsWith('#/runs/')")


def test_theme_follows_the_system_until_chosen(daemon, open_page):
    play(daemon, SimulatedRun("themed"), 2)
    ground = "getComputedStyle(document.body).backgroundColor"
    page = open_page(scheme="light")
    page.wait_for(f"{CARDS} === 1")
    light = page.evaluate(ground)
    page.look(scheme="dark")
    page.wait_for(f"{ground} !== '{light}'")
    button = "document.getElementById('theme')"
    page.evaluate(f"{button}.click()")
    assert page.evaluate(f"[{button}.textContent, {ground}]") == ["Theme: light", light]
    page.open(f"{daemon.address}/?again")
    assert page.evaluate(f"[{button}.textContent, {ground}]") == ["Theme: light", light]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1000, 1600])
def test_fits_and_is_legible(daemon, open_page, width, scheme):
    play(daemon, SimulatedRun("a" * 120, model=Model(name="m" * 90), user="u" * 60), 20)
    lost = play(daemon, SimulatedRun("other"), 2)
    daemon.push(lost, [{"type": "end", "status": "failed"}])
    page = open_page(width=width, height=700, scheme=scheme)
    page.wait_for(f"{CARDS} === 1")
    page.evaluate("document.querySelector('.check input').click()")
    page.wait_for(f"{CARDS} === 2")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(WIDE_CONTENT) == []
    assert page.evaluate(SPILLED) == []
    assert page.evaluate(CONTRASTS) == []


def test_reduced_motion_is_respected(daemon, open_page):
    play(daemon, SimulatedRun("calm"), 2)
    duration = ("getComputedStyle(document.querySelector('.bar-last'))"
                ".transitionDuration.split(',')[0]")
    page = open_page(reduced_motion=True)
    page.wait_for(f"{CARDS} === 1")
    assert page.evaluate(duration) == "0s"
    page.look(reduced_motion=False)
    assert page.evaluate(duration) == "0.3s"


def test_groups_show_what_each_run_may_use(browser):
    with FakeDaemon() as served:
        first = play(served, SimulatedRun("first", group="gpu"), 4)
        second = play(served, SimulatedRun("second", group="gpu"), 4)
        served.groups = [
            {"name": "gpu", "total_bytes": 1024 * MIB, "assigned_bytes": 768 * MIB, "runs": [
                {"id": first, "name": "first", "share_bytes": 512 * MIB, "need_bytes": 700 * MIB,
                 "budget_bytes": 512 * MIB, "pending_bytes": 600 * MIB},
                {"id": second, "share_bytes": 512 * MIB, "need_bytes": 256 * MIB,
                 "budget_bytes": 128 * MIB, "pending_bytes": None},
                {"id": "gone01", "name": "before", "share_bytes": 0, "need_bytes": 0, "lost": True,
                 "budget_bytes": 128 * MIB, "pending_bytes": None},
                {"id": "gone02", "name": None, "share_bytes": 0, "need_bytes": 0, "lost": True,
                 "budget_bytes": 0, "pending_bytes": None}]},
            {"name": "bare", "total_bytes": None, "assigned_bytes": 0, "runs": []}]
        page = browser.page()
        page.open(served.address)
        page.wait_for("document.querySelectorAll('.group').length === 2")
        assert page.evaluate("[...document.querySelectorAll('.group .panel-head .note')]"
                             ".map(one => one.textContent)") == [
            "768.0 MiB of 1.0 GiB assigned, 256.0 MiB free", "0 B assigned, no total is set"]
        assert page.evaluate("[...document.querySelectorAll('.group tbody tr')]"
                             ".map(row => [...row.cells].map(cell => cell.textContent))") == [
            [f"first ({first})", "512.0 MiB", "512.0 MiB", "700.0 MiB", "600.0 MiB"],
            [f"second ({second})", "128.0 MiB", "512.0 MiB", "256.0 MiB", "\u2013"],
            ["before (gone01), silent", "128.0 MiB", "0 B", "0 B", "\u2013"],
            ["gone02, silent", "0 B", "0 B", "0 B", "\u2013"]]
        widths = page.evaluate("[...document.querySelectorAll('.group-track a')]"
                               ".map(one => one.style.width)")
        assert widths == ["50%", "12.5%", "12.5%", "0%"]
        assert page.problems == []
        page.close()
