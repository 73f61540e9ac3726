"""What is left when the user, or the system, ends a run or a part of it."""

import json
import os
import pathlib
import select
import signal
import subprocess

import pytest

import conftest
from paced import paced_record
from waiting import wait_for

ENDLESS = 20000  # steps: minutes of training, never reached
KILLED_STEPS = 60
POLICIES = ["none", "full", "every_n:n=2", "pudica"]


class Started:
    """A run in progress, known by a mark in its environment that its workers inherit."""

    def __init__(self, out, **options):
        environment = conftest.environment()
        self.mark = environment[conftest.MARK]
        self.out = out
        self.lines = []
        self.process = subprocess.Popen(conftest.arguments_of(out, options), env=environment,
                                        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for(self, text):
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return
        self.process.wait(timeout=conftest.TIMEOUT_S)
        pytest.fail(f"ended before {text!r}: {''.join(self.lines)}")

    def workers(self):
        """The pids of its other processes, the eldest first."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
                started = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
            except OSError:
                continue  # gone, or not ours to read
            mine = f"{conftest.MARK}={self.mark}".encode() in variables
            if mine and int(folder.name) != self.process.pid:
                found.append((started, int(folder.name)))
        return [pid for _, pid in sorted(found)]

    def end(self):
        """Waits for the end; a Run."""
        stdout, stderr = self.process.communicate(timeout=conftest.TIMEOUT_S)
        return conftest.Run(self.process.returncode, stdout, "".join(self.lines) + stderr, self.out)


@pytest.fixture
def start(tmp_path):
    started = []

    def run(**options):
        started.append(Started(tmp_path / "out", max_length=32, **options))
        return started[-1]

    yield run
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
        run.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_what_there_is(start, result_validator, number):
    run = start(policy=",".join(POLICIES), steps=ENDLESS)
    run.wait_for("step 1/")
    assert run.workers()
    run.process.send_signal(number)
    done = run.end()
    assert done.code == 130, done.stderr
    assert run.workers() == []
    result = done.result
    result_validator.validate(result)
    assert result["steps"] == ENDLESS
    for name in POLICIES:
        policy = done.policies[name]
        assert policy["status"] == "interrupted", policy
        assert policy["steps"] == len(done.rows.get(name, [])) < ENDLESS
    # One step each in turn: nobody is more than a step ahead.
    steps = [done.policies[name]["steps"] for name in POLICIES]
    assert max(steps) >= 1 and max(steps) - min(steps) <= 1
    assert (done.out / "report.html").is_file()
    assert "interrupted" in done.stdout


def test_a_signal_before_the_first_step_is_no_failure(start, result_validator):
    run = start(policy=",".join(POLICIES), steps=ENDLESS)
    run.wait_for("measuring")
    run.process.send_signal(signal.SIGINT)
    done = run.end()
    assert done.code == 130, done.stderr
    assert run.workers() == []
    if (done.out / "result.json").exists():
        result_validator.validate(done.result)
        assert {policy["status"] for policy in done.result["policies"]} == {"interrupted"}


def test_a_second_signal_ends_it_at_once_and_its_workers_too(start):
    run = start(policy="full,pudica", steps=ENDLESS)
    run.wait_for("step 1/")
    workers = run.workers()
    assert len(workers) == 2
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)  # the parent now waits for an answer that does not come
    handles = [os.pidfd_open(pid) for pid in workers]

    def ended():
        if run.process.poll() is not None:
            return True
        run.process.send_signal(signal.SIGINT)
        return False

    wait_for("a second signal to end it", ended)  # two at once may be one
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    for handle in handles:
        signal_wait(handle)
    assert run.process.returncode == -signal.SIGINT


def signal_wait(handle):
    """Waits until the process of a pidfd has ended."""
    readable, _, _ = select.select([handle], [], [], conftest.TIMEOUT_S)
    os.close(handle)
    assert readable, "a worker outlived its parent"


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_worker_fails_alone(start, result_validator, paced_record, victim):
    names = ["full", "every_n:n=2", "pudica"]
    run = start(policy=",".join(names), steps=KILLED_STEPS, record=paced_record.path)
    paced_record.pass_steps(2)  # nobody comes to the end before all read on
    workers = run.workers()
    assert len(workers) == len(names)
    os.kill(workers[victim], signal.SIGKILL)
    paced_record.let_go()
    done = run.end()
    assert done.code == 1, done.stderr
    result_validator.validate(done.result)
    for name in names:
        policy = done.policies[name]
        if name == names[victim]:
            assert policy["status"] == "failed" and policy["oom"] is False
            assert "9" in policy["detail"] or "kill" in policy["detail"].lower()
            assert policy["steps"] < KILLED_STEPS and policy["params_sha256"] is None
        else:
            assert policy["status"] == "ok" and policy["steps"] == KILLED_STEPS
    assert len(done.digests()) == 1
    assert run.workers() == []


def test_a_record_of_an_interrupted_run_is_whole_lines(start, tmp_path):
    path = tmp_path / "record.jsonl"
    run = start(policy="pudica", steps=ENDLESS, record=path)
    run.wait_for("step 1/")
    run.process.send_signal(signal.SIGINT)
    done = run.end()
    assert done.code == 130
    lines = path.read_text().splitlines()
    assert len(lines) == done.policies["pudica"]["steps"] >= 1
    assert [json.loads(line)["step"] for line in lines] == list(range(1, len(lines) + 1))
