"""What pudicad costs under load, alone and with clients that misbehave.

Starts a daemon of its own in a temporary folder and `simulated_runs` against it (200 runs, 20 steps
a second each, batched and long-polling as real ones), then asks for GET /v1/runs ten times a second
and reads the daemon's CPU time and memory from /proc. The same again with stalled readers (they ask
for a run and never read), 50 clients that send a header byte a second, and 50 connections that are
opened and left.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))

from origin import origin  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
SLOW_CLIENTS = 50
IDLE_CONNECTIONS = 50
INTERVAL_S = 4  # of which each gives one sample of the daemon's CPU time
SEED = 1  # of the simulated runs: the first one's, the others count up


def connect(path, receive_buffer=None):
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(30)
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect(str(path))
    return client


def get(path, target):
    """Status and body of one request on a connection of its own."""
    with connect(path) as client:
        head = f"GET {target} HTTP/1.1\r\nHost: pudica\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        chunks = []
        while chunk := client.recv(1 << 16):
            chunks.append(chunk)
    head, _, body = b"".join(chunks).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def stat_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {"cpu_seconds": (int(fields[11]) + int(fields[12])) / TICKS,
            "rss_mib": int(values["VmRSS"].split()[0]) / 1024,
            "peak_rss_mib": int(values["VmHWM"].split()[0]) / 1024,
            "threads": int(values["Threads"])}


class Attack:
    """Clients that harm whoever serves them naively."""

    def __init__(self, path, run_id):
        self.path, self.stop = path, threading.Event()
        self.open = [connect(path) for _ in range(IDLE_CONNECTIONS)]
        self.slow = [connect(path) for _ in range(SLOW_CLIENTS)]
        self.stalled = [connect(path, 4096) for _ in range(4)]
        for client in self.stalled:
            for _ in range(200):  # pipelined: answers far beyond any buffer
                request = f"GET /v1/runs/{run_id} HTTP/1.1\r\nHost: pudica\r\n\r\n".encode()
                client.setblocking(False)
                with contextlib.suppress(OSError):
                    client.send(request)
        self.reconnects = 0
        self.thread = threading.Thread(target=self.drip)
        self.thread.start()

    def drip(self):
        header = b"GET /v1/runs HTTP/1.1\r\nHost: pudica\r\nX-Slow: " + b"a" * 4000
        sent = [0] * len(self.slow)
        while not self.stop.wait(1):
            for i, client in enumerate(self.slow):
                try:
                    client.send(header[sent[i]:sent[i] + 1])
                    sent[i] += 1
                except OSError:  # cut off, as it should be: comes again
                    client.close()
                    self.slow[i], sent[i] = connect(self.path), 0
                    self.reconnects += 1

    def end(self):
        self.stop.set()
        self.thread.join()
        for client in self.open + self.slow + self.stalled:
            client.close()


def measure(path, pid, seconds):
    """Latencies of GET /v1/runs, ten a second, and what the daemon used meanwhile."""
    latencies, runs, shares = [], 0, []
    before, begin = stat_of(pid), time.monotonic()
    interval, used = begin, before["cpu_seconds"]
    load = open("/proc/stat").readline().split()
    while time.monotonic() - begin < seconds:
        asked = time.monotonic()
        status, body = get(path, "/v1/runs")
        latencies.append(time.monotonic() - asked)
        if status != 200:
            raise RuntimeError(f"GET /v1/runs: {status} {body[:200]!r}, expected 200")
        runs = len(json.loads(body)["runs"])
        time.sleep(max(0.0, 0.1 - (time.monotonic() - asked)))
        if (now := time.monotonic()) - interval >= INTERVAL_S:
            cpu = stat_of(pid)["cpu_seconds"]
            shares.append((cpu - used) / (now - interval))
            interval, used = now, cpu
    wall = time.monotonic() - begin
    after = stat_of(pid)
    busy = open("/proc/stat").readline().split()
    idle = (int(busy[4]) - int(load[4])) / TICKS / wall / os.cpu_count()
    ordered = sorted(1e3 * latency for latency in latencies)
    low, _, high = statistics.quantiles(ordered, n=4)
    return {"seconds": round(wall, 1), "runs": runs, "requests": len(latencies),
            "cpu_of_one_core": round((after["cpu_seconds"] - before["cpu_seconds"]) / wall, 4),
            "cpu_of_one_core_by_interval": {"seconds": INTERVAL_S, "intervals": len(shares),
                                            "min": round(min(shares, default=0), 4),
                                            "max": round(max(shares, default=0), 4)},
            "rss_mib": round(after["rss_mib"], 1), "peak_rss_mib": round(after["peak_rss_mib"], 1),
            "threads": after["threads"],
            "get_runs_ms": {"p50": round(statistics.median(ordered), 2),
                            "quartiles": [round(low, 2), round(high, 2)],
                            "p99": p99(ordered), "max": round(ordered[-1], 2)},
            "machine_idle_share": round(idle, 3)}


def p99(ordered):
    """The nearest rank; None where so few values have none that is not the largest."""
    return round(ordered[math.ceil(0.99 * len(ordered)) - 1], 2) if len(ordered) >= 100 else None


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError, KeyError):
            if condition():
                return
        time.sleep(0.1)
    raise RuntimeError(f"{what}: not within {seconds} s")


def phase(options, path, pid, attacked):
    total = options.settle + options.seconds + 5
    with subprocess.Popen(
            [options.simulated_runs, "--runs", str(options.runs), "--steps-per-second",
             str(options.rate), "--seconds", str(total), "--socket", str(path),
             "--seed", str(SEED)],
            stdout=subprocess.PIPE, text=True) as runs:
        try:
            wait_until(lambda: len(json.loads(get(path, "/v1/runs")[1])["runs"]) >= options.runs,
                       30, f"{options.runs} runs registered")
            time.sleep(options.settle)  # learning is over, the histories of steps are full
            attack = None
            if attacked:
                first = json.loads(get(path, "/v1/runs")[1])["runs"][0]["id"]
                attack = Attack(path, first)
            try:
                figures = measure(path, pid, options.seconds)
            finally:
                if attack:
                    attack.end()
            if attack:
                figures["slow_clients_cut_off"] = attack.reconnects
            output = runs.communicate(timeout=total + 60)[0]
            lines = [json.loads(line) for line in output.splitlines()]
        finally:
            runs.kill()
    figures["steps_per_second"] = round(sum(line["steps"] for line in lines) / total, 1)
    figures["records_dropped"] = sum(line["dropped"] for line in lines)
    figures["reconnects"] = sum(line["reconnects"] for line in lines)
    figures["slowest_step_ms"] = round(1e3 * max(line["slowest_step_seconds"] for line in lines), 1)
    return figures


def write(result, path):
    """On standard output, and into a file where one is named."""
    text = json.dumps(result, indent=1)
    print(text)
    if path:
        pathlib.Path(path).write_text(text + "\n")


def command_of(parser, options):
    words = ["scripts/bench_daemon"]
    for name in ("runs", "rate", "seconds"):
        if (value := getattr(options, name)) != parser.get_default(name):
            words += [f"--{name}", f"{value:g}"]
    return words


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench_daemon", description=__doc__)
    parser.add_argument("--daemon", required=True, help="the program pudicad")
    parser.add_argument("--simulated-runs", required=True, help="the program simulated_runs")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20, help="steps a second of each run")
    parser.add_argument("--seconds", type=float, default=40, help="measured, of each phase")
    parser.add_argument("--settle", type=float, default=15, help="before measuring")
    parser.add_argument("--json", help="write the figures here as well")
    options = parser.parse_args()
    about = origin(command_of(parser, options), SEED)  # before the load that is made here
    with tempfile.TemporaryDirectory(prefix="pudica-load-") as folder:
        path = pathlib.Path(folder) / "run" / "pudicad.sock"
        daemon = subprocess.Popen([
            options.daemon, "--socket", str(path), "--log-level", "error",
            "--database", str(pathlib.Path(folder) / "pudicad.db")])
        try:
            wait_until(lambda: get(path, "/v1/version")[0] == 200, 10, "the daemon answers")
            figures = {"quiet": phase(options, path, daemon.pid, attacked=False),
                       "misbehaved": phase(options, path, daemon.pid, attacked=True)}
        finally:
            daemon.terminate()
            begin = time.monotonic()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
        figures["stopped_in_seconds"] = round(time.monotonic() - begin, 2)
    result = {"schema": "pudica.bench/1", "benchmark": "daemon_load",
              **about,
              "load": {"runs": options.runs, "steps_per_second_each": options.rate,
                       "stalled_readers": 4, "slow_clients": SLOW_CLIENTS,
                       "idle_connections": IDLE_CONNECTIONS},
              **figures}
    write(result, options.json)


if __name__ == "__main__":
    sys.exit(main())
