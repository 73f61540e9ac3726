"""Runs `pudica` piped and on a terminal; a daemon of Python that answers by docs/http_api.md."""

import contextlib
import dataclasses
import errno
import fcntl
import http.server
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socketserver
import struct
import subprocess
import tempfile
import termios
import threading
import time
import urllib.parse

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
PROGRAM = os.environ["PUDICA_CLI"]
RECORD = ROOT / "tests/fixtures/record/squad_mini.jsonl"
DEADLINE_S = 60


def api_example(heading):
    """The first JSON block under a heading of the contract."""
    document = (ROOT / "docs/http_api.md").read_text()
    section = document.split(f"\n### {heading}\n", 1)[1]
    return json.loads(re.search(r"```json\n(.*?)```", section, re.S)[1])


def a_run(**changes):
    return {**api_example("run"), **changes}


def a_plan(**changes):
    modes = ["full", "full", "keep", "keep", "keep", "keep", "keep", "keep"]
    plan = {
        "key": "batch=12,source=384", "fits_up_to": ["batch=12,source=390"],
        "predicted_peak_bytes": 612000000, "measured_peak_bytes": 611000000,
        "slack_bytes": 1000000, "hits": 4, "created_step": 7, "last_used_step": 40,
        "reason": "2 of 8 layers recomputed",
        "plan": {"id": 7, "key": "batch=12,source=384", "modes": modes, "default_mode": "keep",
                 "teach_first_of_class": False, "revocable": True, "feasible": True,
                 "predicted_peak_bytes": 612000000, "predicted_extra_seconds": 0.02,
                 "certified_gap_seconds": 0.0, "reason": "2 of 8 layers recomputed"},
    }
    return {**plan, **changes}


class FakeDaemon:
    """State that a test sets, and every request that it got."""

    def __init__(self, folder):
        self.socket = str(folder / "pudicad.sock")
        self.runs = [a_run()]
        self.groups = []
        self.plans = [a_plan()]
        self.models = []
        self.version = {"name": "pudicad", "version": "0.1.0", "protocol": 1, "protocol_min": 1,
                        "pid": os.getpid(), "started_at": "2026-01-01T12:00:00Z",
                        "uptime_seconds": 3600.5, "socket": self.socket, "database": "/db"}
        self.requests = []
        # What becomes of a budget that is put: the change that the run tells, once it was asked
        # `looks_until_taken` times; None: it takes no step.
        self.taken = {"step": 42, "budget_bytes": 18 << 30, "measured_bytes": 17 << 30,
                      "seconds": 0.25, "recompute_seconds": 0.031}
        self.looks_until_taken = 2
        self.looks_left = None
        self.longest_keys = ["batch=12,source=384"]
        self.estimates = {}  # shape -> what differs from the example
        self.override = {}  # path -> (status, body as bytes)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def address_string(self):
                return "unix"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                outer.answer(self, None)

            def do_DELETE(self):
                outer.answer(self, None)

            def do_POST(self):
                self.do_PUT()

            def do_PUT(self):
                length = int(self.headers["Content-Length"])
                outer.answer(self, json.loads(self.rfile.read(length)))

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            request_queue_size = 64

        self.server = Server(self.socket, Handler)
        os.chmod(self.socket, 0o600)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)

    def answer(self, handler, body):
        target = urllib.parse.urlsplit(handler.path)
        query = dict(urllib.parse.parse_qsl(target.query))
        self.requests.append((handler.command, urllib.parse.unquote(target.path), query, body))
        if target.path in self.override:
            status, text = self.override[target.path]
        else:
            status, value = self.route(handler.command, target.path, query, body)
            text = json.dumps(value).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            handler.wfile.write(text)

    @staticmethod
    def error(status, code, message):
        return status, {"error": {"code": code, "message": message}}

    def find(self, name):
        for run in self.runs:
            if name in (run["id"], run["name"]):
                return run
        return None

    def route(self, method, path, query, body):
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        if path == "/v1/version":
            return 200, self.version
        if path == "/v1/models":
            return 200, {"models": self.models}
        if path == "/v1/prune":
            return 200, {"removed_runs": 3, "database_bytes": 4096}
        if parts[:2] == ["v1", "models"] and method == "DELETE":
            return 200, {"fingerprint": parts[2]}
        if path == "/v1/runs":
            ended = query.get("all") == "true"
            shown = [run for run in self.runs if ended or run["state"] != "ended"]
            return 200, {"runs": shown, "groups": self.groups}
        if parts[:2] == ["v1", "groups"] and method == "PUT":
            return 200, {"name": parts[2], "total_bytes": 40 << 30, "assigned_bytes": 0, "runs": []}
        if parts[:2] != ["v1", "runs"]:
            return self.error(404, "not_found", f"no route {path}")
        run = self.find(parts[2])
        if run is None:
            return self.error(404, "not_found", f"no run '{parts[2]}', expected an id or a name")
        return self.run_route(run, parts[3:], query, body)

    def run_route(self, run, rest, query, body):
        if not rest:
            details = {"steps": [run["last"]], "budgets": [
                {"at": "2026-01-01T12:00:05Z", "seq": 2, "step": 20, "budget_bytes": 629145600,
                 "source": "operator", "plan_id": 7, "predicted_bytes": 612000000,
                 "measured_bytes": 611000000}],
                "structure": {"classes": ["encoder"], "layers": []}, "learned": [],
                "longest_keys": self.longest_keys,
                "margin_bytes": 1000, "counters": {}}
            if self.looks_left is not None:
                self.looks_left -= 1
                if self.taken is not None and self.looks_left <= 0:
                    details["budgets"].append({"at": "2026-01-01T12:00:09Z", "seq": 3,
                                               "source": "operator", "plan_id": 9,
                                               "predicted_bytes": 17 << 30, **self.taken})
            return 200, {**run, **details}
        if rest == ["plans"]:
            return 200, {"run": run["id"], "plans": self.plans}
        if rest == ["explain"]:
            return 200, {**api_example("explain"), "run": run["id"]}
        if rest == ["estimate"]:
            return 200, {**api_example("estimate"), "run": run["id"],
                         **self.estimates.get(query["shape"], {})}
        if rest == ["budget"]:
            self.looks_left = self.looks_until_taken
            return 202, {"run": run["id"], "budget_bytes": 18 << 30, "seq": 3,
                         "effective": "next step"}
        return self.error(404, "not_found", "no such route")


@dataclasses.dataclass(frozen=True)
class Output:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self):
        return json.loads(self.stdout)

    @property
    def rows(self):
        """The lines of a tab-separated table as dictionaries."""
        lines = [line.split("\t") for line in self.stdout.splitlines()]
        assert all(len(line) == len(lines[0]) for line in lines), self.stdout
        return [dict(zip(lines[0], line)) for line in lines[1:]]


def clean_environment(changes):
    dropped = ("PUDICA_", "XDG_", "NO_COLOR", "COLUMNS", "LC_", "LANG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    kept |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **changes}
    return {name: value for name, value in kept.items() if value is not None}


class Cli:
    def __init__(self, socket=None):
        self.environment = {"PUDICA_SOCKET": socket} if socket else {}

    def __call__(self, *arguments, env=None, cwd=None):
        """Piped."""
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=DEADLINE_S,
                              env=clean_environment({**self.environment, **(env or {})}), cwd=cwd)
        return Output(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    @contextlib.contextmanager
    def terminal(self, *arguments, env=None, columns=120, rows=30):
        """On a pseudo terminal, until the block ends."""
        process, master = pty.fork()
        if process == 0:
            set_size(0, columns, rows)  # before the program is there to ask for it
            os.execve(PROGRAM, [PROGRAM, *arguments],
                      clean_environment({**self.environment, **(env or {})}))
        screen = Terminal(process, master)
        try:
            yield screen
        finally:
            screen.close()

    def shown(self, *arguments, **options):
        """All that a command prints on a terminal; it must end with 0."""
        with self.terminal(*arguments, **options) as screen:
            text = screen.read_all()
            assert screen.exit_code() == 0, text
            return text.replace("\r\n", "\n")


def set_size(terminal, columns, rows):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    def __init__(self, process, master):
        self.process, self.master = process, master
        self.text = ""
        self.code = None

    def resize(self, columns, rows):
        set_size(self.master, columns, rows)

    def read_some(self, timeout):
        ready, _, _ = select.select([self.master], [], [], timeout)
        if not ready:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def wait_for(self, pattern):
        """The match of a pattern in what came since the last one; all before it is forgotten."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            match = re.search(pattern, self.text, re.S)
            if match:
                self.text = self.text[match.end():]
                return match
            assert time.monotonic() < deadline, f"{pattern} not seen in {self.text!r}"
            assert self.read_some(0.2), f"ended without {pattern}: {self.text!r}"

    def read_all(self):
        deadline = time.monotonic() + DEADLINE_S
        while self.read_some(0.2):
            assert time.monotonic() < deadline, self.text
        return self.text

    def type(self, keys):
        os.write(self.master, keys.encode())

    def exit_code(self):
        if self.code is None:
            _, status = os.waitpid(self.process, 0)
            self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def close(self):
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            self.exit_code()
        os.close(self.master)


@pytest.fixture
def folder():
    """A folder of a short name: the path of a socket is bounded."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="pudica-cli-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def daemon(folder):
    server = FakeDaemon(folder)
    yield server
    server.stop()


@pytest.fixture
def cli(daemon):
    return Cli(daemon.socket)
