"""What a training run feels when its daemon is killed: step times in the second after kill -9.

Starts a daemon of its own in a temporary folder and `pudica-train --daemon` on batches of one
length, so that all steps are alike. At random instants the daemon is killed and started again; at
as many others, mixed with them, nothing is done: what these show is the machine. A step belongs to
an instant where a part of it lies in the second after it. Wall clock and the training process's CPU
clock, which counts the threads that speak to the daemon as well. Daemon and training have sessions
of their own, as in two terminals: the scheduler shares the machine between sessions.
"""

import argparse
import contextlib
import csv
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from daemon_load import ROOT, get, wait_until, write
from origin import measuring_environment, origin

WARMUP_STEPS = 40
SECOND = 1.0
PAUSE_S = (1.5, 2.5)  # between two instants
DEAD_S = (0.0, 0.1)
MOST_STEPS = 30_000


class Daemon:
    def __init__(self, options, folder):
        self.path = folder / "run" / "pudicad.sock"
        self.command = [options.daemon, "--socket", str(self.path), "--log-level", "error",
                        "--database", str(folder / "pudicad.db")]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, start_new_session=True)
        wait_until(lambda: get(self.path, "/v1/version")[0] == 200, 30, "the daemon answers")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def step(self):
        """Of the run, as the daemon knows it."""
        runs = json.loads(get(self.path, "/v1/runs")[1])["runs"]
        return (runs[0]["step"] or 0) if runs else 0


class Steps:
    """When each step ended: the lines of the record, watched as they come."""

    def __init__(self, path):
        self.path, self.ended, self.stop = path, [], threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        read = 0
        while not self.stop.wait(0.002):
            with contextlib.suppress(FileNotFoundError):
                if (size := self.path.stat().st_size) > read:
                    with self.path.open("rb") as file:
                        file.seek(read)
                        lines = file.read(size - read).count(b"\n")
                    self.ended += [time.monotonic()] * lines
                    read = size

    def end(self):
        self.stop.set()
        self.thread.join()


def train(options, folder, socket_path):
    lengths = folder / "lengths.csv"
    lengths.write_text("len\n" + f"{options.length}\n" * 64)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("PUDICA_")}
    return subprocess.Popen(
        [options.train, "--daemon", "--policy", "pudica", "--budget", "0.5", "--threads", "1",
         "--model", options.model, "--batch", str(options.batch), "--steps", str(MOST_STEPS),
         "--data", f"lengths:{lengths}", "--record", str(folder / "record.jsonl"),
         "--out", str(folder / "out")],
        env={**environment, **measuring_environment(), "PUDICA_SOCKET": str(socket_path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)


def disturb(options, daemon, training, chance):
    """Instants of kills, and of nothing."""
    acts = ["kill", "nothing"] * options.kills
    chance.shuffle(acts)
    instants = {"kill": [], "nothing": []}
    for act in acts:
        time.sleep(chance.uniform(*PAUSE_S))
        if training.poll() is not None:
            raise RuntimeError(f"the training ended: {training.communicate()[1]}")
        instants[act].append(time.monotonic())
        if act == "kill":
            daemon.kill()
            time.sleep(chance.uniform(*DEAD_S))
            daemon.start()
    time.sleep(PAUSE_S[0])
    return instants


def quartiles(values, digits):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(middle, digits), "quartiles": [round(low, digits), round(high, digits)]}


def compare(steps, clock, instants):
    """Medians of the steps in the seconds after, alone and over the median of the run."""
    run = statistics.median(step[clock] for step in steps)
    out = {"run": quartiles([1e3 * step[clock] for step in steps], 2)}
    for act, when in instants.items():
        seconds = [[step[clock] for step in steps
                    if step["ended"] > at and step["began"] < at + SECOND] for at in when]
        after = [took for second in seconds for took in second]
        out["after_" + act] = quartiles([1e3 * took for took in after], 2)
        out["after_" + act]["over_run"] = round(statistics.median(after) / run, 4)
        out["after_" + act]["over_run_by_instant"] = quartiles(
            [statistics.median(second) / run for second in seconds if second], 4)
    return out


def measure(options, folder):
    chance = random.Random(options.seed)
    daemon = Daemon(options, folder)
    training = train(options, folder, daemon.path)
    watched = Steps(folder / "record.jsonl")
    try:
        wait_until(lambda: daemon.step() > WARMUP_STEPS, 300, f"step {WARMUP_STEPS}")
        instants = disturb(options, daemon, training, chance)
        seen = daemon.step()
        training.send_signal(signal.SIGINT)
        said = training.communicate(timeout=120)[1]
        if training.returncode != 130:
            raise RuntimeError(f"pudica-train: exit {training.returncode}, expected 130: {said}")
    finally:
        watched.end()
        training.kill()
        daemon.kill()
    with (folder / "out" / "steps.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == "pudica"]
    steps = [{"ended": ended, "began": ended - float(row["seconds"]),
              "wall": float(row["seconds"]), "cpu": float(row["cpu_seconds"])}
             for ended, row in zip(watched.ended, rows)][WARMUP_STEPS:]
    return {"steps": len(steps), "kills": options.kills,
            "last_step_reported": seen,
            "cpu_ms": compare(steps, "cpu", instants), "wall_ms": compare(steps, "wall", instants)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    programs = ROOT / "build" / "release" / "bin"
    parser.add_argument("--daemon", default=programs / "pudicad", help="the program pudicad")
    parser.add_argument("--train", default=programs / "pudica-train", help="the program itself")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--model", default="mini,hidden=32,layers=4")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the figures here as well")
    options = parser.parse_args()
    about = origin(["bench/daemon_kill.py", *sys.argv[1:]], options.seed)
    about["environment"].update(measuring_environment())  # of the training
    with tempfile.TemporaryDirectory(prefix="pudica-kill-") as folder:
        figures = measure(options, pathlib.Path(folder))
    result = {"schema": "pudica.bench/1", "benchmark": "daemon_kill", **about,
              "training": {"model": options.model, "batch": options.batch,
                           "length": options.length, "threads": 1},
              **figures}
    write(result, options.json)


if __name__ == "__main__":
    sys.exit(main())
