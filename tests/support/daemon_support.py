"""A real pudicad on a socket of its own, started, asked and killed by tests."""

import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess

import pytest

from waiting import PATIENCE_S, wait_for

PROGRAM = os.environ["PUDICA_DAEMON"]


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("pudica", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Daemon:
    """pudicad in `folder`; keeps its database there across kills."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.socket = self.folder / "run" / "pudicad.sock"
        self.process = None

    def start(self):
        self.socket.parent.mkdir(mode=0o700, exist_ok=True)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("PUDICA_")}
        with (self.folder / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--socket", str(self.socket), "--database", str(self.folder / "db")],
                env=environment, stdout=log, stderr=log)
        wait_for("pudicad to answer", self._answers)
        return self

    def _answers(self):
        assert self.process.poll() is None, (self.folder / "daemon.log").read_text()
        try:
            return self.get("/v1/version")["name"] == "pudicad"
        except OSError:
            return False

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=PATIENCE_S)

    def request(self, method, target, body=None):
        connection = _Connection(self.socket)
        try:
            connection.request(method, target, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def get(self, target):
        status, body = self.request("GET", target)
        assert status == 200, (target, status, body)
        return body

    def runs(self, everything=False):
        return self.get("/v1/runs" + ("?all=true" if everything else ""))["runs"]

    def only_run(self):
        runs = self.runs()
        return runs[0] if len(runs) == 1 else None


# Fixtures, for test files to import.


@pytest.fixture
def daemon(tmp_path):
    """A daemon that runs."""
    started = Daemon(tmp_path).start()
    yield started
    started.stop()


@pytest.fixture
def instants():
    """Random numbers; PUDICA_TEST_SEED for others."""
    seed = int(os.environ.get("PUDICA_TEST_SEED", 1))
    print(f"seed {seed} (PUDICA_TEST_SEED)")
    return random.Random(seed)


@pytest.fixture
def processes():
    """processes(words, ...) starts one, which does not outlive the test; options as Popen's."""
    started = []

    def start_one(words, **options):
        started.append(subprocess.Popen(words, text=True, **options))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.wait()
