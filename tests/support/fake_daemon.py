"""A stand-in for pudicad: the page and the reading half of docs/http_api.md, for the page's tests.

It has the interface that the tests use of the real one (register, push, address). Run it by hand
to work on the page: python3 tests/support/fake_daemon.py [PORT]
"""

import collections
import contextlib
import datetime
import http.server
import json
import math
import pathlib
import socket
import statistics
import sys
import threading
import time
import urllib.parse

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src/daemon/page"
CHART = pathlib.Path("/usr/share/javascript/chart.js/chart.min.js")
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
RUN_FIELDS = ("name", "pid", "user", "command", "device", "model", "policy", "fingerprint",
              "versions", "budget_bytes", "floor_bytes", "keep_all_bytes", "steps_total")


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def elements(key):
    """Of a batch of that shape."""
    return math.prod(int(part.rpartition("=")[2]) for part in key.split(","))


class RunState:
    """What is known of one run, from its registration and its events."""

    def __init__(self, run_id, registration):
        self.view = {"id": run_id, **{name: registration.get(name) for name in RUN_FIELDS}}
        self.view.update(
            group=registration.get("group") or None, state="registered", state_reason="no step yet",
            status=None, started_at=now(), last_seen_at=now(), ended_at=None, step=None,
            budget_source="run", budget_fraction=None, budget_pending_bytes=None, base_bytes=None,
            peak_bytes=None,
            last=None, step_seconds_median=None, recomputed_share=None,
            recomputed_calls_share=None, budget_used=None, learning_steps=0,
            revocations=0, overruns=0, cache={"hits": 0, "misses": 0, "plans": 0},
            dropped_records=0)
        self.steps = collections.deque(maxlen=512)
        self.longest = None  # of all steps, the key of the most elements
        self.snapshot = {}
        self.calls = self.recomputed = 0
        self.again = self.timed = 0
        self.budgets = [self._change(0, self.view["budget_bytes"], "run")]

    @staticmethod
    def _change(step, budget, source):
        return {"at": now(), "seq": 0, "step": step, "budget_bytes": budget, "source": source,
                "plan_id": None, "predicted_bytes": None, "measured_bytes": None,
                "seconds": None, "recompute_seconds": None}

    def take(self, event):
        self.view["last_seen_at"] = now()
        getattr(self, "_" + event["type"])(event)

    def _step(self, event):
        record = event["record"]
        last = {name: record[name] for name in (
            "step", "key", "plan_id", "predicted_bytes", "measured_bytes", "budget_bytes",
            "seconds", "revocations", "overrun")}
        last.update(recomputed=event["recomputed"], layers=len(record["modes"]),
                    learning=event["learning"], allocator=record.get("allocator"),
                    recompute_seconds=record.get("recompute_seconds"),
                    recomputed_share=record.get("recompute_seconds", 0) / record["seconds"],
                    budget_used=record["measured_bytes"] / record["budget_bytes"])
        self.steps.append(last)
        self.longest = max(self.longest or last["key"], last["key"], key=elements)
        self.calls += last["layers"]
        self.recomputed += last["recomputed"]
        self.again += record.get("recompute_seconds", 0)
        self.timed += record["seconds"]
        view, change = self.view, self.budgets[-1]
        if change["measured_bytes"] is None and last["step"] >= change["step"]:
            for name in ("plan_id", "predicted_bytes", "measured_bytes", "seconds",
                         "recompute_seconds"):
                change[name] = last[name]
        recent = [step["seconds"] for step in list(self.steps)[-128:]]
        view.update(
            step=last["step"], last=last, budget_bytes=last["budget_bytes"],
            peak_bytes=max(view["peak_bytes"] or 0, last["measured_bytes"]),
            step_seconds_median=statistics.median(recent),
            recomputed_share=self.again / self.timed,
            recomputed_calls_share=self.recomputed / max(1, self.calls),
            budget_used=max(view["budget_used"] or 0,
                            last["measured_bytes"] / last["budget_bytes"]),
            learning_steps=view["learning_steps"] + last["learning"],
            revocations=view["revocations"] + last["revocations"],
            overruns=view["overruns"] + last["overrun"])

    def _snapshot(self, event):
        self.snapshot = event["snapshot"]
        for name in ("state", "state_reason", "base_bytes", "margin_bytes", "cache"):
            self.view[name] = self.snapshot[name]

    def _budget(self, event):
        self.budgets.append(self._change(event["step"], event["budget_bytes"], "operator"))
        self.view.update(budget_bytes=event["budget_bytes"], budget_source="operator")

    def _end(self, event):
        self.view.update(state="ended", status=event["status"], ended_at=now(),
                         state_reason=f"the run ended: {event['status']}")

    def detail(self):
        parts = {name: self.snapshot.get(name) for name in (
            "structure", "learned", "margin_bytes", "counters")}
        longest = [self.longest] if self.longest else []
        return {**self.view, "steps": list(self.steps), "budgets": self.budgets, **parts,
                "longest_keys": longest}


class FakeDaemon:
    """Serves on a free port of the loopback interface until the `with` block ends."""

    def __init__(self, port=0):
        self.runs, self.groups, self.models = {}, [], []
        self.taught = {}  # simulated runs that answer explain and estimate, by id
        self.forgets = False  # whether it leaves out has_model, as of runs from the database
        self.lock = threading.Lock()
        self.started = time.time()
        self.started_at = now()
        self.port = port
        self.server = None
        self.connections = []

    def __enter__(self):
        daemon = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                status, kind, body = daemon.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", "default-src 'self'")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def process_request(self, request, client_address):
                daemon.connections.append(request)
                super().process_request(request, client_address)

            def handle_error(self, *_):
                pass  # a browser that went away

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def register(self, registration):
        with self.lock:
            run_id = f"r{len(self.runs):05d}"
            self.runs[run_id] = RunState(run_id, registration)
            return run_id

    def teach(self, run_id, simulated):
        """From now on questions about the run's shapes are answered, by the simulated run."""
        with self.lock:
            self.taught[run_id] = simulated

    def push(self, run_id, events):
        with self.lock:
            for event in events:
                self.runs[run_id].take(json.loads(json.dumps(event)))

    def answer(self, path):
        parts = urllib.parse.urlsplit(path)
        if not parts.path.startswith("/v1/"):
            return self.asset(parts.path)
        with self.lock:
            value = self.value(parts.path.split("/")[2:], parts.query)
        status = 200
        if value is None:
            status = 404
            value = {"error": {"code": "not_found", "message": f"no run at {parts.path}"}}
        return status, "application/json", json.dumps(value).encode()

    def value(self, words, query):
        if words == ["version"]:
            return {"name": "pudicad", "version": "0.1.0", "protocol": 1, "protocol_min": 1,
                    "pid": 4242, "started_at": self.started_at,
                    "uptime_seconds": time.time() - self.started,
                    "socket": "/run/user/1000/pudica/pudicad.sock", "database": "pudicad.db"}
        if words == ["models"]:
            return {"models": self.models}
        if words == ["runs"]:
            ended = "all=true" in query
            runs = [run.view for run in self.runs.values()
                    if ended or run.view["state"] not in ("ended", "lost")]
            return {"runs": runs, "groups": self.groups}
        run = self.runs.get(urllib.parse.unquote(words[1])) if words[0] == "runs" else None
        if run is None:
            return None
        if words[2:] == ["plans"]:
            return {"run": words[1], "plans": run.snapshot.get("plans", [])}
        if len(words) == 2:
            told = {} if self.forgets else {"has_model": words[1] in self.taught}
            return {**run.detail(), **told}
        return self.answer_question(words[1], words[2], urllib.parse.parse_qs(query))

    def answer_question(self, run_id, question, query):
        simulated = self.taught.get(run_id)
        if simulated is None or question not in ("explain", "estimate"):
            return None
        budget = int(query.get("budget", [self.runs[run_id].view["budget_bytes"]])[0])
        answer = getattr(simulated, question)(query["shape"][0], budget)
        return {"run": run_id, "key": query["shape"][0], "budget_bytes": budget, **answer}

    @staticmethod
    def asset(path):
        name = "index.html" if path == "/" else path.removeprefix("/assets/")
        file = CHART if name == CHART.name else PAGE / name
        if "/" in name or not file.is_file():
            return 404, "text/plain", b"not found"
        return 200, TYPES[file.suffix], file.read_bytes()


def play(daemon, simulated, steps):
    """Registers the run and lets it train for some steps; its id."""
    run_id = daemon.register(simulated.registration())
    advance(daemon, run_id, simulated, steps)
    return run_id


def advance(daemon, run_id, simulated, steps):
    events = [simulated.step() for _ in range(steps)]
    if steps:
        events.append({"type": "snapshot", "snapshot": simulated.snapshot()})
    daemon.push(run_id, events)


if __name__ == "__main__":
    from showcase import showcase

    with FakeDaemon(int(sys.argv[1]) if len(sys.argv) > 1 else 8000) as served:
        live = showcase(served)
        for known in live:
            served.teach(*known)
        print(served.address, "(Enter: three steps more)", flush=True)
        for _ in sys.stdin:
            for one in live:
                advance(served, *one, 3)
