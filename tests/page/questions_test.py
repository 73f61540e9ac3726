"""What the run's page asks the daemon: why a layer is as it is, and what another budget costs."""

import pytest
from fake_daemon import FakeDaemon, advance, play
from looks import CONTRASTS, SPILLED, WIDE_CONTENT
from simulated_runs import MIB, Model, SimulatedRun

MAP = "document.querySelector('.map-grid')"
TIP = "document.querySelector('.map-tip').textContent"
SPOKEN = "document.querySelector('.map [aria-live]').textContent"
SLIDER = "document.getElementById('budget-slider')"
SAID = "document.getElementById('budget-said').textContent"
READY = f"{SLIDER}?.checkVisibility() && {SAID} !== ''"
ROWS = ("[...document.querySelectorAll('[aria-label=\"Another budget\"] tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))")
AT_REST = "!document.querySelector('[aria-label=\"Another budget\"]').ariaBusy"


def run_of(budget=230 * MIB, **about):
    model = Model(classes={"Encoder": 3, "Decoder": 2}, base_bytes=60 * MIB,
                  menu=("keep", "selective:1", "selective:2", "offload", "full"))
    return SimulatedRun("asked", seed=4, budget=budget, model=model, lengths=(64, 640), **about)


@pytest.fixture
def daemon():
    with FakeDaemon() as served:
        yield served


@pytest.fixture
def open_taught(daemon, open_page):
    """open_taught(run, condition) -> (run's id, page); the daemon answers questions of the run."""

    def open_one(run, condition=READY, steps=40, **look):
        run_id = play(daemon, run, steps)
        daemon.teach(run_id, run)
        page = open_page(f"#/runs/{run_id}", **look)
        page.wait_for(condition)
        return run_id, page

    return open_one


def set_slider(page, budget):
    page.evaluate(f"(() => {{ {SLIDER}.value = '{budget}';"
                  f"{SLIDER}.dispatchEvent(new Event('input')) }})()")
    page.wait_for(AT_REST)
    return int(page.evaluate(f"{SLIDER}.value"))


def questions(page, word):
    return [url for url in page.requests if f"/{word}?" in url]


def test_the_tip_says_why_the_layer_is_as_it_is(open_taught):
    run = run_of()
    _, page = open_taught(run)
    page.evaluate(f"{MAP}.focus()")
    batch, shortest = run.batch, min(run.plans)
    for row, mode in enumerate(run.plans[shortest]["plan"]["modes"]):
        wanted = f"layer {row} at {batch}x{shortest}: {mode}, as its own reason says"
        page.wait_for(f"{TIP}.includes('{wanted}')")
        assert wanted in page.evaluate(SPOKEN)
        assert run.plans[shortest]["reason"] not in page.evaluate(TIP)
        page.press("ArrowDown")


HOLD_ANSWERS = """(() => {
  const ask = window.fetch;
  const held = new Promise((done) => { window.release = done });
  window.fetch = async (...what) => {
    if (String(what[0]).includes("/explain")) await held;
    return ask(...what);
  };
})()"""


def test_a_reason_arrives_though_other_plans_come_meanwhile(daemon, open_taught):
    run = run_of()
    run_id, page = open_taught(run)
    page.wait_for(AT_REST)
    page.evaluate(HOLD_ANSWERS)
    page.evaluate(f"{MAP}.focus()")
    page.wait_for(f"{TIP}.includes('asking why')")
    shortest = min(run.plans)
    run.lengths = (8, 48)
    advance(daemon, run_id, run, 8)
    page.wait_for(f"Number({MAP}.ariaColCount) === {len(run.plans)}")
    page.evaluate("release()")
    page.wait_for(f"{TIP}.includes('at {run.batch}x{shortest}:')")


def test_a_plan_is_asked_about_once_and_only_when_looked_at(open_taught):
    run = run_of()
    _, page = open_taught(run)
    before = len(questions(page, "explain"))
    page.evaluate(f"{MAP}.focus()")
    page.wait_for(f"{TIP}.includes('own reason')")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"):
        page.press(key)
    page.wait_for(f"{TIP}.includes('own reason')")
    assert 1 <= len(questions(page, "explain")) - before <= 2


def test_another_plan_s_answer_gives_way_to_the_plan_s_own_reason(open_taught):
    run = run_of()
    _, page = open_taught(run)
    shortest = min(run.plans)
    run.explain = lambda key, budget: {
        **SimulatedRun.explain(run, key, budget),
        "layers": [{"mode": "other", "why": "of another plan"}] * 5}
    page.evaluate(f"{MAP}.focus()")
    page.wait_for(f"{TIP}.includes({run.plans[shortest]['reason']!r})")
    assert "of another plan" not in page.evaluate(TIP)


def test_the_slider_begins_at_the_budget_and_shows_the_layers_as_they_are(open_taught):
    run = run_of()
    _, page = open_taught(run)
    assert int(page.evaluate(f"{SLIDER}.value")) == run.budget
    assert page.evaluate(SAID) == "230.0 MiB: the budget as it is"
    page.wait_for(AT_REST)
    shown = page.evaluate(ROWS)
    assert [row[0].split(":")[0] for row in shown] == ["longest", "median", "shortest"]
    for row in shown:
        source = int(row[0].rsplit("\u00d7", 1)[1])
        modes = run.model.plan(run.batch, source, run.budget - run.margin)[0]
        assert row[2] == "as now"
        assert (row[4] == "none") == (set(modes) == {"keep"})
        assert row[5] == ""


def test_the_longest_batch_is_that_of_the_whole_run(daemon, open_taught, open_page, ask):
    run = run_of()
    run_id, page = open_taught(run)
    longest = page.evaluate(ROWS)[0][0]
    run.lengths = (64, 128)
    advance(daemon, run_id, run, 512)  # as many as are kept
    assert all(longest.rsplit("\u00d7", 1)[1] != step["key"].rsplit("=", 1)[1]
               for step in ask(f"/v1/runs/{run_id}")["steps"])
    page = open_page(f"#/runs/{run_id}")
    page.wait_for(READY)
    row = page.evaluate(ROWS)[0]
    assert row[0] == longest and row[1] == "\u2013", "how long it took is not known any more"


def test_less_memory_costs_what_the_daemon_would_plan(open_taught, ask):
    run = run_of()
    run_id, page = open_taught(run)
    steps = ask(f"/v1/runs/{run_id}")["steps"]
    budget = set_slider(page, 200 * MIB)
    assert abs(budget - 200 * MIB) <= int(page.evaluate(f"{SLIDER}.step"))
    lengths = sorted(int(step["key"].rsplit("=", 1)[1]) for step in steps)
    picked = {"longest": lengths[-1], "median": lengths[(len(lengths) - 1) // 2],
              "shortest": lengths[0]}
    for row in page.evaluate(ROWS):
        name, shape = row[0].split(": ")
        source = picked[name]
        assert shape == f"{run.batch}\u00d7{source}"
        before, after = (run.explain(run.key(source), one) for one in (run.budget, budget))
        if not after["fits"]:
            assert row[2].startswith("does not fit: needs ")
            continue
        times = sorted(step["seconds"] for step in steps
                       if step["key"] == run.key(source) and not step["learning"])
        extra = after["extra_seconds"] - before["extra_seconds"]
        if times and extra > 1e-7:
            assert row[2].startswith(f"+{100 * extra / times[len(times) // 2]:.1f} % a step (")
        moved = [after["layers"][layer]["mode"] for layer in range(5)
                 if before["layers"][layer]["mode"] != after["layers"][layer]["mode"]]
        assert all(f"\u2192 {mode}:" in row[5] for mode in moved)
        assert bool(moved) == (row[5] != "none")
    assert page.evaluate(SAID).startswith(f"With {(run.budget - budget) / MIB:.1f} MiB less (")
    assert page.evaluate(SAID).endswith(", median batch")
    command = page.evaluate("document.querySelector('.what-if > .note').textContent")
    assert command == f"To set it: pudica budget {run_id} {budget}"


def test_while_it_moves_the_frontier_answers_without_the_daemon(open_taught):
    run = run_of()
    _, page = open_taught(run)
    page.wait_for(AT_REST)
    asked = len(page.requests)
    estimates = len(questions(page, "estimate"))
    assert estimates == 3
    told = page.evaluate(f"""(() => {{ const seen = [];
        for (let budget = 228; budget > 190; budget -= 4) {{
          {SLIDER}.value = String(budget * {MIB});
          {SLIDER}.dispatchEvent(new Event('input'));
          seen.push({ROWS}.map(cells => cells[2]));
        }}
        return seen }})()""")
    assert len(page.requests) == asked
    assert all(text.startswith("about ") or text == "does not fit" for one in told for text in one)
    page.wait_for(AT_REST)
    assert len(questions(page, "estimate")) == estimates


def test_what_the_frontier_says_is_what_the_daemon_plans_whatever_the_margin(open_taught):
    run = run_of()
    run.margin_share = 0.12  # of what is learned; the run itself holds back less
    _, page = open_taught(run)
    page.wait_for(AT_REST)
    for budget in (220, 240, 300, 400):
        about = page.evaluate(f"""(() => {{ {SLIDER}.value = String({budget * MIB});
            {SLIDER}.dispatchEvent(new Event('input'));
            return {ROWS}.map(cells => cells[2]) }})()""")
        page.wait_for(AT_REST)
        exact = [row[2].split(":")[0] for row in page.evaluate(ROWS)]
        assert [text.removeprefix("about ") for text in about] == exact


def test_a_price_is_against_the_plan_in_use(open_taught):
    run = run_of()
    run.margin_share = 0.2
    _, page = open_taught(run, steps=60)
    step = int(page.evaluate(f"{SLIDER}.step"))
    budget = set_slider(page, run.budget - step)
    for row in page.evaluate(ROWS):
        key = run.key(int(row[0].rsplit("\u00d7", 1)[1]))
        extra = run.explain(key, budget)["extra_seconds"] - run.explain(
            key, run.budget)["extra_seconds"]
        if run.explain(key, budget)["fits"] and extra > 1e-6:
            assert row[2].startswith("+") and f"{extra * 1e3:.1f} ms" in row[2]


def test_arrow_keys_move_the_slider_and_tell_what_it_costs(open_taught):
    run = run_of()
    _, page = open_taught(run)
    page.evaluate(f"{SLIDER}.focus()")
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    page.wait_for(AT_REST)
    step = int(page.evaluate(f"{SLIDER}.step"))
    assert int(page.evaluate(f"{SLIDER}.value")) == run.budget - 2 * step
    assert page.evaluate(f"{SLIDER}.labels[0].textContent") == "Budget"
    page.wait_for(f"{SLIDER}.getAttribute('aria-valuetext') === {SAID}")
    assert page.evaluate(f"document.activeElement === {SLIDER}")
    page.press("End")
    page.wait_for(AT_REST)
    assert {row[4] for row in page.evaluate(ROWS)} == {"none"}


def test_another_budget_moves_the_slider_there(daemon, open_taught):
    run = run_of()
    run_id, page = open_taught(run)
    set_slider(page, 200 * MIB)
    run.set_budget(210 * MIB)
    daemon.push(run_id, [{"type": "budget", "seq": 1, "step": run.next_step,
                          "budget_bytes": 210 * MIB}])
    advance(daemon, run_id, run, 3)
    page.wait_for(f"{SLIDER}.value === '{210 * MIB}' && {AT_REST}")
    assert page.evaluate(SAID) == "210.0 MiB: the budget as it is"


def test_of_an_old_run_that_nothing_is_kept_of_it_says_so_once(daemon, open_page):
    run_id = play(daemon, run_of(), 40)
    daemon.push(run_id, [{"type": "end", "status": "ok"}])
    daemon.forgets = True  # as of runs that only the database knows
    page = open_page(f"#/runs/{run_id}")
    page.expected = ["404"]  # the browser's own line
    page.wait_for("/Nothing is kept that could answer/.test("
                  "document.querySelector('main').innerText)")
    page.evaluate(f"{MAP}.focus()")
    page.wait_for(f"{TIP}.includes('budget')")  # the plan's own reason
    assert len(questions(page, "estimate")) == 1


def test_before_anything_is_learned_it_says_so_and_asks_nothing(daemon, open_page):
    run_id = play(daemon, run_of(), 3)
    page = open_page(f"#/runs/{run_id}")
    page.wait_for("/Known once the run has learned/.test(document.querySelector('main').innerText)")
    assert page.evaluate(f"{SLIDER}.checkVisibility()") is False
    assert questions(page, "estimate") == questions(page, "explain") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_fits_and_is_legible(open_taught, width, scheme):
    _, page = open_taught(run_of(), width=width, height=700, scheme=scheme)
    set_slider(page, 200 * MIB)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(WIDE_CONTENT) == []
    assert page.evaluate(SPILLED) == []
    assert page.evaluate(CONTRASTS) == []
