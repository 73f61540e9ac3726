"""pudicad itself behind the interface of fake_daemon.FakeDaemon."""

import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading

DEADLINE_S = 30
LISTENING = re.compile(r"127\.0\.0\.1:(\d+)")


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path):
        super().__init__("pudica", timeout=DEADLINE_S)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self._path)


class RealDaemon:
    """A daemon of its own on a free port, with its own socket and database."""

    def __init__(self, program, port=0):
        self._program = program
        self._folder = tempfile.TemporaryDirectory(prefix="pudica-page-")
        self._process = None
        self.port = port

    def __enter__(self):
        folder = pathlib.Path(self._folder.name)
        self._socket = folder / "private" / "pudicad.sock"
        self._process = subprocess.Popen(
            [self._program, "--socket", str(self._socket), "--database", str(folder / "runs.db"),
             "--listen", f"127.0.0.1:{self.port}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._said = []
        port = None
        for line in self._process.stdout:
            self._said.append(line)
            port = LISTENING.search(line)
            if port:
                break
        if port is None:
            raise AssertionError("pudicad does not listen:\n" + "".join(self._said))
        self.port = int(port[1])
        threading.Thread(target=self._drain, daemon=True).start()
        return self

    def _drain(self):
        for line in self._process.stdout:
            self._said.append(line)

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def socket(self):
        return self._socket

    def ask(self, method, path, body=None):
        connection = UnixConnection(self._socket)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            value = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status >= 400:
            raise AssertionError(f"{method} {path}: {answer.status} {value}")
        return value

    def register(self, registration):
        return self.ask("POST", "/v1/runs", registration)["id"]

    def push(self, run_id, events):
        path = f"/v1/runs/{run_id}/events"
        for begin in range(0, len(events), 200):
            self.ask("POST", path, {"dropped": 0, "events": events[begin:begin + 200]})
