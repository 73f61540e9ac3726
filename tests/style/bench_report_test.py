"""scripts/bench passes the program's figures on and adds the machine."""

import json
import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "scripts/lib"))

import bench_report  # noqa: E402
import origin  # noqa: E402


def test_a_result_of_python_says_where_it_is_from():
    about = origin.origin(["bench/toy.py", "--only", "a b", "--json", f"{ROOT}/x.json"], 7)
    assert about["machine"]["cores"] >= 1 and about["machine"]["cpu"]
    assert about["versions"]["compiler"] and about["versions"]["python"]
    assert about["command"] == "bench/toy.py --only 'a b'" and about["seed"] == 7


def test_cpp_and_python_write_the_same_keys():
    cpp = (ROOT / "src/inspect/origin.cpp").read_text()
    about = origin.origin(["bench/toy.py"], 1)
    asked = {"seed", "machine", "versions"}  # these the programs add
    for key in (about.keys() - asked) | about["machine"].keys() | {"compiler"}:
        assert f'{{"{key}", ' in cpp, key
    for name, values in (("kVariables", origin.VARIABLES),
                         ("kInstructionSets", origin.INSTRUCTION_SETS)):
        listed = re.search(rf"{name} = {{(.*?)}};", cpp, re.DOTALL)[1]
        assert set(re.findall(r'"(\w+)"', listed)) == set(values)


def test_measurements_run_under_one_environment():
    given = origin.measuring_environment()
    cpp = (ROOT / "src/inspect/origin.cpp").read_text()
    body = re.search(r"measuring_environment\(\) {(.*?)\n}", cpp, re.DOTALL)[1]
    joined = re.sub(r'"\s*\n\s*"', "", body)
    assert dict(re.findall(r'{"(\w+)",\s*"([^"]*)"}', joined)) == given
    documented = (ROOT / "docs/benchmarking.md").read_text()
    for name, value in given.items():
        assert f"`{name}={value}`" in documented


def test_it_names_the_torch_in_use(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 9.8.7+toy\n")
    python.chmod(0o755)
    monkeypatch.delenv("PUDICA_TORCH", raising=False)
    monkeypatch.delenv("PUDICA_PRESET", raising=False)
    monkeypatch.setenv("PUDICA_PYTHON", str(python))
    assert bench_report.torch_version() == "9.8.7+toy"
    monkeypatch.setenv("PUDICA_TORCH", "OFF")
    assert bench_report.torch_version() is None


def test_a_program_that_fails_ends_the_run(tmp_path, monkeypatch):
    program = tmp_path / "toy_bench"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["bench", "--binary", str(program), "--root", str(ROOT),
                                      "--json", str(out)])
    with pytest.raises(SystemExit, match="exit code 3"):
        bench_report.main()
    assert not out.exists()


def test_the_program_s_report_gets_what_it_lacks(tmp_path, monkeypatch):
    program = tmp_path / "toy_bench"
    said = {"benchmark": "toy", "cases": [], "revision": "built"}
    program.write_text(f"#!/bin/sh\necho '{json.dumps(said)}' > \"$2\"\n")
    program.chmod(0o755)
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["bench", "--binary", str(program), "--root", str(ROOT),
                                      "--json", str(out), "--calls", "9"])
    bench_report.main()
    report = json.loads(out.read_text())
    assert report["benchmark"] == "toy" and report["machine"]["cores"] >= 1
    assert report["revision"] == "built"  # what was built is what was measured
    assert report["command"] == "scripts/bench toy --calls 9"
