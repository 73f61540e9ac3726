"""The figures that scripts/bench reports are those of the repetitions."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "scripts/lib"))

import bench_report  # noqa: E402


def entry(name, time, **more):
    return {"run_type": "iteration", "run_name": name, "real_time": time, "time_unit": "us", **more}


def test_quantiles_are_values_that_were_seen():
    values = [float(value) for value in range(1, 101)]
    assert bench_report.quantile(values, 0.5) == 50.0
    assert bench_report.quantile(values, 0.99) == 99.0
    assert bench_report.quantile([7.0], 0.99) == 7.0


def test_rows_by_case_without_aggregates_and_errors():
    rows = bench_report.summarize([
        entry("a", 1.0, gap=0.25), entry("a", 2.0, gap=0.25), entry("a", 4.0, gap=0.25),
        entry("b", 9.0), entry("b", 1.0, error_occurred=True),
        {"run_type": "aggregate", "run_name": "a", "real_time": 100.0, "time_unit": "us"},
    ])
    assert [row["name"] for row in rows] == ["a", "b"]
    assert rows[0]["median"] == 2.0 and rows[0]["p99"] == 4.0 and rows[0]["repetitions"] == 3
    assert rows[0]["spread"] == pytest.approx(1.5)
    assert rows[0]["counters"] == {"gap": 0.25}
    assert rows[1]["repetitions"] == 1


def test_machine_names_revision_and_processor():
    about = bench_report.machine(ROOT)
    assert about["cores"] >= 1 and about["processor"] and about["compiler"]
