"""scripts/bench passes the program's figures on and adds the machine."""

import json
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "scripts/lib"))

import bench_report  # noqa: E402


def test_machine_names_revision_and_processor():
    about = bench_report.machine(ROOT)
    assert about["cores"] >= 1 and about["processor"] and about["compiler"]


def test_machine_names_the_torch_in_use(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 9.8.7+toy\n")
    python.chmod(0o755)
    monkeypatch.delenv("PUDICA_TORCH", raising=False)
    monkeypatch.delenv("PUDICA_PRESET", raising=False)
    monkeypatch.setenv("PUDICA_PYTHON", str(python))
    assert bench_report.machine(ROOT)["torch"] == "9.8.7+toy"
    monkeypatch.setenv("PUDICA_TORCH", "OFF")
    assert bench_report.machine(ROOT)["torch"] is None


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


def test_the_program_s_report_gets_the_machine(tmp_path, monkeypatch):
    program = tmp_path / "toy_bench"
    program.write_text("#!/bin/sh\necho '{\"benchmark\": \"toy\", \"cases\": []}' > \"$2\"\n")
    program.chmod(0o755)
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["bench", "--binary", str(program), "--root", str(ROOT),
                                      "--json", str(out)])
    bench_report.main()
    report = json.loads(out.read_text())
    assert report["benchmark"] == "toy" and report["machine"]["cores"] >= 1
