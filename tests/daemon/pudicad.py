"""Runs the real pudicad on a socket of its own, and speaks plain HTTP to it."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import typing

from waiting import wait_for

PUDICAD = os.environ.get("PUDICAD", "pudicad")
DEADLINE = 20  # seconds; a busy machine, not a target


class Reply(typing.NamedTuple):
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


def connect(address, timeout=DEADLINE):
    """`address`: the path of a UNIX socket, or (host, port)."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    connection.connect(address)
    return connection


def read_all(connection):
    received = b""
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not part:
            return received
        received += part


def send_raw(address, data, timeout=DEADLINE):
    """All that comes back, as bytes."""
    with connect(address, timeout) as connection:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # answered before all of it was read
        return read_all(connection)


def parse_reply(data):
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    version, status = lines[0].split(" ")[:2]
    assert version == "HTTP/1.1", lines[0]
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Reply(int(status), headers, body)


def ask(address, method, target, body=None, headers=(), timeout=DEADLINE):
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    data = "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")
    return parse_reply(send_raw(address, data, timeout))


class Daemon:
    """Started on entry, ended on exit; a folder of its own for socket and database."""

    def __init__(self, *arguments, environment=None, config=None):
        self.folder = tempfile.TemporaryDirectory(prefix="pudicad-")
        self.socket = os.path.join(self.folder.name, "run", "pudicad.sock")
        self.database = os.path.join(self.folder.name, "pudicad.db")
        self.config = os.path.join(self.folder.name, "pudica.json")
        self.arguments = list(arguments)
        if config is not None:
            self.write_config(config)
            self.arguments += ["--config", self.config]
        self.environment = {**os.environ, **(environment or {})}
        self.process = None

    def write_config(self, config):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(config if isinstance(config, str) else json.dumps(config))

    def command(self):
        return [PUDICAD, "--socket", self.socket, "--database", self.database, *self.arguments]

    @property
    def log(self):
        with open(os.path.join(self.folder.name, "log"), encoding="utf-8") as file:
            return file.read()

    def start(self):
        with open(os.path.join(self.folder.name, "log"), "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command(), stderr=log, stdin=subprocess.DEVNULL,
                                            env=self.environment)
        wait_for("pudicad to answer", self.answers)
        return self

    def answers(self):
        assert self.process.poll() is None, f"pudicad ended: {self.log}"
        try:
            return self.get("/v1/version").status == 200
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    def stop(self, how=signal.SIGTERM):
        """The exit code."""
        self.process.send_signal(how)
        return self.process.wait(DEADLINE)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def alive(self):
        return self.process.poll() is None and self.get("/v1/version").status == 200

    def get(self, target, **more):
        return ask(self.socket, "GET", target, **more)

    def put(self, target, body):
        return ask(self.socket, "PUT", target, body)

    def post(self, target, body):
        return ask(self.socket, "POST", target, body)

    def tcp(self):
        """(host, port) of the TCP listener, from the log, which may come after the first answer."""
        found = wait_for("the TCP listener in the log",
                         lambda: re.search(r"listening: at=([^/\s]+):(\d+)\n", self.log))
        return found[1], int(found[2])

    def register(self, name="train", **more):
        reply = self.post("/v1/runs", {**DESCRIPTION, "name": name, **more})
        assert reply.status == 201, reply
        return reply.json()["id"]

    def events(self, run, *events):
        return self.post(f"/v1/runs/{run}/events", {"dropped": 0, "events": list(events)})


DESCRIPTION = {
    "protocol": 1, "protocol_min": 1, "name": "train", "pid": 4711, "user": "ada", "command": "x",
    "device": "cpu", "model": "small", "policy": "pudica", "fingerprint": "f", "group": "",
    "versions": {"pudica": "0.1.0"}, "budget_bytes": 629145600, "floor_bytes": None,
    "keep_all_bytes": None, "steps_total": 100}


def step(number, measured=6000, seconds=0.25):
    return {"type": "step", "learning": False, "recomputed": 1, "record": {
        "schema": "pudica.step/1", "run": "r", "step": number, "key": "batch=12,source=384",
        "plan_id": 7, "modes": ["keep", "full"], "predicted_bytes": 5000,
        "measured_bytes": measured, "budget_bytes": 629145600, "seconds": seconds,
        "revocations": 0, "overrun": False}}
