"""Every policy in one run: the same training, within the budget, and the files of a run."""

import json
import math
import os
import pathlib
import re
import statistics

import pytest

POLICIES = ["none", "full", "every_n:n=2", "sqrt", "static", "mimose", "mimose:rule=code",
            "reactive", "pudica", "pudica:menu=keep+full", "pudica:menu=full",
            "pudica:menu=keep+offload+full", "sac", "sac:save=mm+gelu", "dtr", "dtr:h=lru",
            "oracle"]
METERED, CAPPED = "none (metered)", "none (capped)"
# Rivals that decide without knowing the peak may run out of memory; that is their result.
MAY_RUN_OUT = {"every_n:n=2", "sqrt", "static", "mimose", "mimose:rule=code", "sac",
               "sac:save=mm+gelu", CAPPED}
HELD = [name for name in POLICIES if name != "none"]
STEPS = 14
DATA = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"]) / "data"


@pytest.fixture(scope="module")
def run(train):
    done = train(policy=",".join(POLICIES), steps=STEPS, budget=0.5, batch=4,
                 data=f"lengths:{DATA / 'qqp.csv'}", max_length=96)
    assert done.code == 0, done.stderr
    return done


def test_result_has_the_documented_fields(run, result_validator):
    result_validator.validate(run.result)


def test_every_policy_has_a_row_and_none_a_metered_and_a_capped_one(run):
    assert list(run.policies) == ["none", METERED, CAPPED, *POLICIES[1:]]
    assert [policy["name"] for policy in run.result["policies"]] == list(run.policies)


def test_the_budget_is_the_fraction_asked_for(run):
    result = run.result
    floor, keep_all = result["floor_bytes"], result["keep_all_bytes"]
    assert 0 < floor < keep_all
    assert result["budget_bytes"] == math.floor(floor + 0.5 * (keep_all - floor))
    assert 0 < result["menu_floor_bytes"] <= floor


@pytest.mark.parametrize("name", POLICIES)
def test_it_trains_the_same_parameters_as_none(run, name):
    policy = run.policies[name]
    if name in MAY_RUN_OUT and policy["status"] == "oom":
        assert policy["oom"] is True and policy["params_sha256"] is None and policy["detail"]
        return
    assert policy["status"] == "ok", policy["detail"]
    assert policy["steps"] == STEPS
    assert policy["params_sha256"] == run.policies["none"]["params_sha256"]


@pytest.mark.parametrize("name", HELD)
def test_it_stays_within_the_budget(run, name):
    policy = run.policies[name]
    assert policy["overruns"] == 0
    if name in MAY_RUN_OUT and policy["status"] == "oom":
        return
    assert policy["oom"] is False
    assert policy["budget_used"] == policy["peak_bytes"] / run.result["budget_bytes"]
    assert policy["budget_used"] <= 1


def test_none_is_plain_and_its_metered_row_keeps_everything(run):
    none, metered = run.policies["none"], run.policies[METERED]
    for field in ("peak_bytes", "budget_used", "recomputed_share", "recomputed_calls_share"):
        assert none[field] is None, "there is no handle that could tell, and no meter"
    assert not (run.out / "plans-none.json").exists()
    assert metered["status"] == "ok" and metered["params_sha256"] == none["params_sha256"]
    assert metered["peak_bytes"] == run.result["keep_all_bytes"]
    assert metered["recomputed_share"] == metered["recomputed_calls_share"] == 0
    assert run.policies[CAPPED]["status"] == "oom"


def test_full_needs_the_floor_and_recomputes_every_layer(run):
    for name in ("full", "pudica:menu=full"):
        assert run.policies[name]["recomputed_calls_share"] == 1
        assert 0 < run.policies[name]["recomputed_share"] < 1, "the backward is no recomputation"
    assert run.policies["full"]["peak_bytes"] == run.result["floor_bytes"]


def test_sac_holds_what_its_operators_made(train):
    done = train(policy="none,full,sac,sac:save=gelu,sac:save=gelu+mm", steps=3, budget=1.0,
                 batch=8, max_length=256)
    assert done.code == 0, done.stderr
    assert len(done.digests()) == 1
    peaks = {name: policy["peak_bytes"] for name, policy in done.policies.items()}
    assert peaks["full"] < peaks["sac:save=gelu"] < peaks["sac:save=gelu+mm"]
    assert peaks["full"] < peaks["sac"] < done.result["keep_all_bytes"]
    assert done.policies["sac"]["recomputed_calls_share"] == 1
    assert all("addmm" in plan["reason"] for plan in done.plans("sac")["plans"])


def test_dtr_takes_no_longer_than_revoking_whole_layers(train):
    done = train(policy="reactive,dtr", steps=14, budget=0.4, batch=8, max_length=256)
    assert done.code == 0, done.stderr
    # Of the operators' clock, once the menus are found.
    seconds = {name: sum(float(row["handle_seconds"]) for row in done.rows[name][3:])
               for name in ("reactive", "dtr")}
    assert all(int(row["revocations"]) > 0 for row in done.rows["dtr"][-3:])
    assert seconds["dtr"] <= seconds["reactive"]


def test_the_oracle_uses_the_whole_menu_and_recomputes_least(run):
    modes = {mode for plan in run.plans("oracle")["plans"] for mode in plan["modes"]}
    assert any(mode.startswith("selective:") for mode in modes)
    for name in ("full", "reactive", "pudica", "pudica:menu=keep+full", "pudica:menu=full"):
        assert run.policies["oracle"]["recomputed_share"] < run.policies[name]["recomputed_share"]


@pytest.mark.parametrize("name", ["pudica", "pudica:menu=keep+full"])
def test_it_recomputes_less_than_everything(run, name):
    assert 0 < run.policies[name]["recomputed_calls_share"] < 1
    assert (run.policies[name]["recomputed_share"]
            < run.policies["pudica:menu=full"]["recomputed_share"])


def test_times_are_given_in_terms_of_none(run):
    none = run.policies["none"]
    assert none["time_vs_none"] == none["cpu_time_vs_none"] == 1
    assert none["warmup_overhead_steps"] == 0
    for name, policy in run.policies.items():
        whole = policy["status"] == "ok"
        for field in ("time_vs_none", "cpu_time_vs_none"):
            assert (policy[field] is not None) == whole, (name, field)
        warm = policy["steps"] >= 10
        assert (policy["warmup_overhead_steps"] is not None) == warm, name


def test_only_what_plans_has_a_cache_and_plan_times(run):
    for name, policy in run.policies.items():
        plans = name.startswith("pudica")
        assert (policy["cache"] is not None) == plans, name
        assert (policy["plan_us"] is not None) == plans, name
    for name in ("pudica", "pudica:menu=keep+full"):
        assert run.policies[name]["warmup_steps"] > 0
        assert run.policies[name]["prediction"] is not None


@pytest.mark.parametrize("name", [METERED, CAPPED, *POLICIES[1:]])
def test_the_summary_follows_from_steps_csv(run, name):
    policy, rows = run.policies[name], run.rows.get(name, [])
    assert len(rows) == policy["steps"]
    assert [int(row["step"]) for row in rows] == list(range(len(rows)))
    if not rows:
        assert policy["peak_bytes"] is None and policy["step_seconds_median"] is None
        return
    assert max(int(row["peak_bytes"]) for row in rows) == policy["peak_bytes"]
    assert sum(int(row["revocations"]) for row in rows) == policy["revocations"]
    assert sum(int(row["revocations"]) > 0 for row in rows) == policy["revoked_steps"]
    assert sum(int(row["overrun"]) for row in rows) == policy["overruns"]
    assert sum(int(row["learning"]) for row in rows) == policy["warmup_steps"]
    predicted = [row for row in rows if row["predicted_bytes"]]
    if (prediction := policy["prediction"]) is None:
        assert not predicted
    else:
        assert prediction["steps"] == len(predicted)
        assert sum(prediction["left_out"].values()) == len(rows) - len(predicted)
        assert prediction["revoked"] == sum(int(row["revocations"]) > 0 for row in predicted)
    recomputed = sum(int(row["recomputed_layers"]) for row in rows)
    calls = sum(int(row["layer_calls"]) for row in rows)
    assert policy["recomputed_calls_share"] == pytest.approx(recomputed / calls)
    timed = [row for row in rows if row["recompute_seconds"]]
    if timed:
        again = sum(float(row["recompute_seconds"]) for row in timed)
        share = again / sum(float(row["handle_seconds"]) for row in timed)
        assert policy["recomputed_share"] == pytest.approx(share, abs=1e-3)
    seconds = statistics.median(float(row["seconds"]) for row in rows)
    assert policy["step_seconds_median"] == pytest.approx(seconds, abs=2e-6)
    budgets = {row["budget_bytes"] for row in rows}
    assert budgets == ({""} if name == METERED else {str(run.result["budget_bytes"])})


def test_every_policy_sees_the_same_batches_and_losses(run):
    def columns(name):
        return [(row["step"], row["shape"], row["loss"]) for row in run.rows[name]]

    expected = columns("none")
    assert len({shape for _, shape, _ in expected}) > 1
    for name in run.rows:
        assert columns(name) == expected[:len(columns(name))], name


@pytest.mark.parametrize("name", [METERED, *POLICIES[1:]])
def test_plans_name_a_mode_for_each_layer(run, name):
    if run.policies[name]["status"] != "ok":
        pytest.skip("ran out of memory: there is no end at which plans are written")
    document = run.plans(name)
    assert document["schema"] == "pudica.plans/1"
    assert document["policy"] == name
    shapes = [plan["shape"] for plan in document["plans"]]
    assert len(shapes) == len(set(shapes))
    assert set(shapes) <= {row["shape"] for row in run.rows[name]}
    for plan in document["plans"]:
        assert len(plan["modes"]) == run.result["model"]["layers"]
        assert all(re.fullmatch(r"keep|full|offload|selective:\d+", mode)
                   for mode in plan["modes"]), plan
        if name.startswith("pudica") and plan["uses"] > 0:
            assert plan["predicted_bytes"] <= run.result["budget_bytes"]


@pytest.mark.parametrize("name, allowed", [
    ("full", {"full"}), ("pudica:menu=full", {"full"}),
    ("pudica:menu=keep+full", {"keep", "full"}),
    ("pudica:menu=keep+offload+full", {"keep", "offload", "full"}), ("mimose", {"keep", "full"})])
def test_plans_use_only_the_modes_that_the_policy_has(run, name, allowed):
    if run.policies[name]["status"] != "ok":
        pytest.skip("ran out of memory: there is no end at which plans are written")
    plans = run.plans(name)["plans"]
    assert plans
    assert {mode for plan in plans for mode in plan["modes"]} <= allowed


def test_the_report_stands_alone_and_holds_the_result(run):
    html = (run.out / "report.html").read_text()
    assert html.lstrip().lower().startswith("<!doctype html>")
    loads = re.findall(r"""(?:\b(?:src|href)\s*=|url\(|@import|fetch\(|import\()"""
                       r"""\s*["']?([^"'\s>)]*)""", html, flags=re.IGNORECASE)
    outside = [target for target in loads if re.match(r"(?:[a-z]+:)?//|https?:|file:|\.?/", target)]
    assert not outside
    for name in run.policies:
        assert name in html
    embedded = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)
    data = json.loads(embedded.group(1))
    assert data["budget"] == run.result["budget_bytes"]
    for policy in data["policies"]:
        peaks = [int(row["peak_bytes"]) for row in run.rows.get(policy["name"], [])]
        assert policy["peak"] == peaks


def test_the_folder_holds_the_documented_files_only(run):
    expected = {"result.json", "steps.csv", "report.html"}
    names = {path.name for path in run.out.iterdir()}
    assert expected <= names
    assert all(re.fullmatch(r"plans-[-\w.+=]+\.json", name) for name in names - expected)
    for path in run.out.glob("*.json"):
        json.loads(path.read_text())


def test_the_table_and_the_sentence_are_printed(run):
    for name in run.policies:
        assert re.search(rf"^{re.escape(name)}\s", run.stdout, flags=re.MULTILINE), name
    assert "Keeping everything needs" in run.stdout
    assert str(run.out / "report.html") in run.stdout


def test_pudica_alone_has_nothing_to_compare_with(train, result_validator):
    done = train(policy="pudica", steps=12, max_length=32)
    assert done.code == 0, done.stderr
    result_validator.validate(done.result)
    assert list(done.policies) == ["pudica"]
    policy = done.policies["pudica"]
    assert policy["status"] == "ok"
    for field in ("time_vs_none", "cpu_time_vs_none", "warmup_overhead_steps"):
        assert policy[field] is None
