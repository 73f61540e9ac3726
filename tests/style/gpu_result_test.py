"""What scripts/gpu_check makes of what it found: nothing vacuous counts as good."""

import copy
import json
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "bench")]

import cuda_card  # noqa: E402
import gpu_result  # noqa: E402
import gpu_values  # noqa: E402

WAY = {"same": True, "finite": True, "recomputed_calls": 4, "layer_calls": 8, "overruns": 1,
       "infeasible_steps": 0, "failures": 0}
GOOD = {"kind": "toy", "repeats": True,
        "ways": {"none": {**WAY, "recomputed_calls": 0}, "full": dict(WAY)}}


def test_what_was_compared_and_is_the_same_is_good():
    assert gpu_values.fault_of(GOOD) == ""


@pytest.mark.parametrize("change, fault", [
    ({"same": False}, "other bits: full"),
    ({"finite": False}, "full: the loss is not finite"),
    ({"out_of_memory": "no room"}, "full: no room"),
    ({"failures": 1}, "full: nothing was planned"),
    ({"layer_calls": 0}, "full: nothing was planned"),
    ({"recomputed_calls": 0}, "full: nothing was planned"),
])
def test_what_says_nothing_of_the_bits_is_a_fault(change, fault):
    one = copy.deepcopy(GOOD)
    one["ways"]["full"] |= change
    assert gpu_values.fault_of(one) == fault
    counted = gpu_result.values_of({"kinds": [GOOD, one]})
    assert (counted["kinds"], counted["kinds_with_the_same_bits"]) == (2, 1)


def test_a_kind_that_did_not_run_or_repeat_is_a_fault():
    assert gpu_values.fault_of({"kind": "toy", "failed": "no module"}) == "no module"
    assert gpu_values.fault_of({**GOOD, "ways": {}}) == "nothing was compared"
    assert gpu_values.fault_of({**GOOD, "repeats": False}) == "does not repeat itself"


def report(folder, name, result, failures=0, tests=1):
    (folder / f"{name}.log").write_text("")
    suites = [{"testsuite": [{"result": result}]}]
    (folder / f"{name}.json").write_text(json.dumps(
        {"failures": failures, "tests": tests, "testsuites": suites}))


def test_tests_that_ended_without_a_report_or_ran_nothing_failed(tmp_path):
    report(tmp_path, "A.passes", "COMPLETED")
    report(tmp_path, "A.skips", "SKIPPED")
    report(tmp_path, "A.fails", "COMPLETED", failures=1)
    report(tmp_path, "A.nobody", "COMPLETED", tests=0)
    (tmp_path / "A.dies.log").write_text("Segmentation fault")
    assert gpu_result.tests_of(tmp_path) == {
        "passed": 1, "skipped": ["A.skips"], "failed": ["A.dies", "A.fails", "A.nobody"]}


def test_a_way_that_ended_and_pudica_over_its_own_budget_are_faults():
    good = {"status": "ok", "failures": 0, "steps_over_by_reserved": 0}
    rows = {"plain": {**good, "steps_over_by_reserved": 9}, "pudica": good}
    assert cuda_card.faults_of({"rows": rows}) == []
    assert cuda_card.faults_of({"failed": "no room"}) == ["no room"]
    rows["pudica"] = {**good, "steps_over_by_reserved": 2}
    rows["policy dtr"] = {"status": "failed", "detail": "it ended"}
    assert cuda_card.faults_of({"rows": rows}) == [
        "policy dtr: it ended", "pudica: 0 failures, 2 steps over"]
