"""Runs pudica-train and reads what it wrote.

The model is tiny and the runs are short: what is tested is what the program promises, not speed.
"""

import csv
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import uuid

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
PROGRAM = os.environ["PUDICA_TRAIN"]
TIMEOUT_S = 300
# With seconds from the operators' work: which plans are tried follows from seconds.
DEFAULTS = ["--model", "mini,hidden=32,layers=4", "--threads", "1", "--batch", "2", "--clock",
            "operators"]
# A process that carries this variable was started, directly or not, by this test session.
MARK = "PUDICA_TEST_MARK"


def environment(**changes):
    """This process's environment without what would steer the program, with `changes`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PUDICA_")}
    return {**kept, MARK: uuid.uuid4().hex, **changes}


@dataclasses.dataclass(frozen=True)
class Run:
    """An ended run: what it said and the folder it wrote."""

    code: int
    stdout: str
    stderr: str
    out: pathlib.Path

    @property
    def result(self):
        return json.loads((self.out / "result.json").read_text())

    @property
    def policies(self):
        return {policy["name"]: policy for policy in self.result["policies"]}

    @property
    def rows(self):
        """The lines of steps.csv, as text, by policy."""
        rows = {}
        with (self.out / "steps.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                rows.setdefault(row["policy"], []).append(row)
        return rows

    def plans(self, policy):
        name = re.sub(r"[^-\w.+=]+", "_", policy).strip("_")
        return json.loads((self.out / f"plans-{name}.json").read_text())

    def digests(self, *statuses):
        """The distinct digests of the policies with one of `statuses` (default: ok)."""
        wanted = statuses or ("ok",)
        return {policy["params_sha256"] for policy in self.result["policies"]
                if policy["status"] in wanted}


def arguments_of(out, options):
    """The command line; an option whose name has an underscore is spelled with a hyphen."""
    words = [PROGRAM, *DEFAULTS, "--out", str(out)]
    for name, value in options.items():
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """train(policy="none,full", steps=6, ...) runs to the end and returns a Run."""

    def run(*words, env=None, out=None, **options):
        folder = out if out is not None else tmp_path_factory.mktemp("run") / "out"
        done = subprocess.run([*arguments_of(folder, options), *words], text=True,
                              capture_output=True, check=False, timeout=TIMEOUT_S,
                              env=environment(**(env or {})), cwd=tmp_path_factory.mktemp("cwd"))
        return Run(done.returncode, done.stdout, done.stderr, pathlib.Path(folder))

    return run


@pytest.fixture(scope="session")
def result_validator():
    import jsonschema  # after run_pytest.py made sure that it is there

    schema = json.loads((ROOT / "tests/fixtures/result.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)
