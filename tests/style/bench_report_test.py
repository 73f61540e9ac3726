"""scripts/bench passes the program's figures on and adds the machine."""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "scripts/lib"))

import bench_report  # noqa: E402


def test_machine_names_revision_and_processor():
    about = bench_report.machine(ROOT)
    assert about["cores"] >= 1 and about["processor"] and about["compiler"]


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
