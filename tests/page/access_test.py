"""The page for people who use a keyboard, a screen reader or their own colours.

axe-core judges every view where it is there (scripts/test unpacks it); what matters most is looked
at here too, so that it is tested anywhere.
"""

import pytest
import unpacked
from fake_daemon import FakeDaemon, play
from looks import CONTRASTS, NAMELESS
from showcase import share_device, showcase
from simulated_runs import SimulatedRun

READY = "document.querySelector('.run-card, .start')?.checkVisibility()"
SLIDER = "document.getElementById('budget-slider')"
SERIOUS = ("serious", "critical")
FINDINGS = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .map((one) => [one.impact, one.id, one.nodes.map((node) => node.html.slice(0, 160))]))"""
REACHABLE = """[...document.querySelectorAll("a[href], button, input, select, summary, [tabindex]")]
  .filter((one) => one.checkVisibility() && one.tabIndex >= 0 && !one.disabled)"""


@pytest.fixture
def daemon():
    with FakeDaemon() as served:
        yield served


@pytest.fixture(params=["start", "overview", "ended", "run", "learning", "missing"])
def view(request, daemon, open_page):
    """A function that opens one of the page's views."""

    def open_view(**look):
        if request.param == "start":
            page = open_page(**look)
            page.wait_for(READY)
            return page
        live = showcase(daemon)
        share_device(daemon, live)
        if request.param in ("overview", "ended"):
            for run_id, _ in live[1:] if request.param == "ended" else []:
                daemon.push(run_id, [{"type": "end", "status": "oom"}])
            page = open_page(**look)
            page.wait_for(READY)
            page.evaluate("document.querySelector('.check input').click()")
            page.wait_for("document.querySelectorAll('.run-card').length === 4")
            return page
        if request.param == "missing":
            page = open_page("#/runs/nosuch", **look)
            page.expected = ["404"]
            page.wait_for("/does not know/.test(document.querySelector('main').innerText)")
            return page
        run_id, run = live[3 if request.param == "learning" else 0]
        daemon.teach(run_id, run)
        page = open_page(f"#/runs/{run_id}", **look)
        page.wait_for("document.querySelector('.tiles div')")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        if request.param == "run":
            page.wait_for(f"{SLIDER}.checkVisibility()")
            page.evaluate("document.querySelector('.map-grid').focus()")
            page.wait_for("/own reason/.test(document.querySelector('.map-tip').textContent)")
        return page

    return open_view


@pytest.mark.parametrize("width, scheme", [(1600, "light"), (360, "dark")])
def test_axe_finds_nothing_serious(view, width, scheme):
    axe = unpacked.axe()
    if axe is None:
        pytest.skip("no axe-core in the cache: scripts/test unpacks it")
    page = view(width=width, scheme=scheme)
    page.evaluate(axe.read_text())
    found = page.evaluate(FINDINGS)
    print("\n".join(map(str, found)))
    assert [one for one in found if one[0] in SERIOUS] == []
    # And it would: a field without a name, and a text that is hard to read.
    page.evaluate("(() => { const text = document.createElement('p'); text.textContent = 'faint';"
                  "text.style.color = 'var(--line)';"
                  "const main = document.querySelector('main'); main.replaceChildren(text,"
                  "document.createElement('input')); main.scrollIntoView() })()")
    assert {one[1] for one in page.evaluate(FINDINGS)} >= {"label", "color-contrast"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_is_legible(view, scheme):
    page = view(scheme=scheme)
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(CONTRASTS) == []
    heads = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].filter("
                          "one => one.checkVisibility()).map(one => Number(one.tagName[1]))")
    assert heads.count(1) <= 1
    assert all(after <= before + 1 for before, after in zip(heads, heads[1:]))


def test_tab_goes_through_everything_in_the_order_of_the_page(view):
    page = view()
    page.evaluate("document.activeElement.blur(); document.querySelectorAll('details')"
                  ".forEach(one => one.open = false)")
    wanted = page.evaluate(f"({REACHABLE}).length")
    page.evaluate(f"window.reachable = {REACHABLE}; window.focus()")
    assert page.evaluate("reachable.every((one) => one.tabIndex === 0)")
    met = []
    for _ in range(wanted + 1):  # between the end and the beginning nothing has the focus
        page.press("Tab")
        met.append(page.evaluate("reachable.indexOf(document.activeElement)"))
    met = [one for one in met if one >= 0][:wanted]
    assert sorted(met) == list(range(wanted))
    turns = sum(after < before for before, after in zip(met, met[1:]))
    assert turns <= 1  # it begins where the page was left


def test_a_change_of_state_is_announced(daemon, open_page):
    run_id = play(daemon, SimulatedRun("told"), 12)
    page = open_page()
    page.wait_for(READY)
    daemon.push(run_id, [{"type": "end", "status": "oom"}])
    page.evaluate("document.querySelector('.check input').click()")
    page.wait_for("document.getElementById('announcer').textContent === 'told: ended: oom'")
