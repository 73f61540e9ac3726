"""Budget groups over restarts: the real daemon, killed at random points.

Goal: totals, shares and loans survive; what runs hold and what the daemon has promised never add
up to more than the total, at any instant. Method: runs of this test's own account, each a process
that can die, that take up orders as the client does; the daemon is killed between requests and
during them, and what was lost with an answer is asked for again.
"""

import contextlib
import random
import signal
import subprocess
import threading

import pudicad
import pytest
from pudicad import Daemon
from waiting import wait_for

TOTAL = 100_000
GROUP = "/v1/groups/gpu"
# Nobody there, or gone before the end of an answer.
NO_ANSWER = (ConnectionError, FileNotFoundError, IndexError, ValueError)


def group_of(daemon):
    groups = [g for g in daemon.get("/v1/runs").json()["groups"] if g["name"] == "gpu"]
    return groups[0] if groups else None


def register(daemon, name, budget, **more):
    reply = daemon.post("/v1/runs", {**pudicad.DESCRIPTION, "name": name, "group": "gpu",
                                     "budget_bytes": budget, **more})
    assert reply.status == 201, reply
    return reply.json()


def restart(daemon, how=signal.SIGKILL):
    daemon.stop(how)
    daemon.start()


@pytest.fixture(name="process")
def process_fixture():
    """process() starts a process that a run can name as its own."""
    with contextlib.ExitStack() as stack:
        def start():
            started = subprocess.Popen(["sleep", "600"])
            stack.callback(lambda: (started.kill(), started.wait()))
            return started

        yield start


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_total_and_promises_outlive_a_restart(how, process):
    with Daemon() as daemon:
        assert daemon.put(GROUP, {"total": 1000}).status == 200
        first = register(daemon, "a", 600, pid=process().pid)
        second = register(daemon, "b", 600, pid=process().pid)
        assert first["budget_bytes"] + second["budget_bytes"] == 1000
        restart(daemon, how)
        group = group_of(daemon)
        assert group["total_bytes"] == group["assigned_bytes"] == 1000
        assert [run["lost"] for run in group["runs"]] == [True, True]
        # Nothing is left for who comes now, until the others are back and have come down.
        third = register(daemon, "c", 600, pid=process().pid)
        assert third["budget_bytes"] == 0
        for name, run in (("a", first), ("b", second)):
            back = register(daemon, name, run["budget_bytes"], resume=run["id"], steps_done=3,
                            pid=process().pid)
            assert back["id"] == run["id"]
        group = group_of(daemon)
        assert group["assigned_bytes"] == 1000 and not any(run["lost"] for run in group["runs"])


def test_what_the_file_says_counts_when_it_says_something_new():
    with Daemon(config={"groups": {"gpu": 4000}}) as daemon:
        assert daemon.put(GROUP, {"total": 2400}).status == 200
        restart(daemon)
        assert group_of(daemon)["total_bytes"] == 2400
        daemon.write_config({"groups": {"gpu": 3000}})
        restart(daemon)
        assert group_of(daemon)["total_bytes"] == 3000


def test_shares_of_operators_outlive_a_restart(process):
    with Daemon() as daemon:
        daemon.put(GROUP, {"total": 1000})
        a = register(daemon, "a", 500, pid=process().pid)
        register(daemon, "b", 500, pid=process().pid)
        assert daemon.put(f"/v1/runs/{a['id']}/budget", {"budget": 200}).status == 202
        restart(daemon)
        shares = {run["id"]: run["share_bytes"] for run in group_of(daemon)["runs"]}
        assert shares[a["id"]] == 200


def test_memory_of_a_process_that_is_gone_is_given_back(process):
    with Daemon() as daemon:
        daemon.put(GROUP, {"total": 1000})
        gone = process()
        register(daemon, "a", 700, pid=gone.pid)
        daemon.stop(signal.SIGKILL)
        gone.kill()
        gone.wait()
        daemon.start()
        wait_for("it to be given back", lambda: group_of(daemon)["assigned_bytes"] == 0)


def test_run_whose_floor_does_not_fit_counts(process):
    """It trains whether its group has room or not; so the group says what is in use."""
    with Daemon() as daemon:
        daemon.put(GROUP, {"total": 1000})
        a = register(daemon, "a", 900, floor_bytes=800, pid=process().pid)
        b = register(daemon, "b", 600, floor_bytes=400, pid=process().pid)
        assert b["budget_bytes"] == 400
        group = group_of(daemon)
        assert group["assigned_bytes"] == group["total_bytes"] == 1300
        assert group["pending_total_bytes"] == 1000
        orders = daemon.get(f"/v1/runs/{a['id']}/commands?wait=0").json()["commands"]
        assert orders[-1]["budget_bytes"] == 800
        # One that is under way counts with all that it uses, and comes down to its floor.
        c = register(daemon, "c", 5000, floor_bytes=100, steps_done=7, pid=process().pid)
        assert c["budget_bytes"] == 100
        assert group_of(daemon)["assigned_bytes"] == 1300 + 5000
        daemon.events(c["id"], {"type": "budget", "seq": 0, "step": 8, "budget_bytes": 100})
        assert group_of(daemon)["assigned_bytes"] == 1400


def test_run_that_begins_waits_until_others_have_left_it_its_floor(process):
    with Daemon() as daemon:
        daemon.put(GROUP, {"total": 1000})
        a = register(daemon, "a", 1000, floor_bytes=100, pid=process().pid)
        answers = []
        joins = threading.Thread(target=lambda: answers.append(
            register(daemon, "b", 500, floor_bytes=300, pid=process().pid)))
        joins.start()
        poll = f"/v1/runs/{a['id']}/commands?wait=30"
        order = daemon.get(poll, timeout=60).json()["commands"][-1]
        daemon.events(a["id"], {"type": "budget", "seq": order["seq"], "step": 2,
                                "budget_bytes": order["budget_bytes"]})
        joins.join()
        assert answers[0]["budget_bytes"] >= 300
        group = group_of(daemon)
        assert group["assigned_bytes"] <= 1000 and group["pending_total_bytes"] is None


def test_lost_answer_leaves_no_second_run(process):
    with Daemon() as daemon:
        daemon.put(GROUP, {"total": 1000})
        named = {"instance": "one", "pid": process().pid}
        first = register(daemon, "a", 700, **named)
        assert register(daemon, "a", 700, **named) == first
        restart(daemon)
        assert register(daemon, "a", 700, **named)["id"] == first["id"]
        assert group_of(daemon)["assigned_bytes"] == 700


class Run:
    """A training process as it really is. `uses` is what the daemon must not lose sight of."""

    def __init__(self, name, budget, floor, process):
        self.name, self.budget, self.floor, self.process = name, budget, floor, process
        self.id, self.after, self.steps, self.order = "", 0, 0, None
        self.uses = 0
        self.joining = None

    def register(self, daemon):
        budget = self.uses if self.steps else self.budget
        answer = register(daemon, self.name, budget, floor_bytes=self.floor,
                          pid=self.process.pid, resume=self.id, steps_done=self.steps,
                          instance=self.name)
        self.id, self.after = answer["id"], 0
        self.order = (0, answer["budget_bytes"])

    def join(self, daemon):
        """Registers while others go on: it may have to wait for them."""
        def register_or_not():
            with contextlib.suppress(*NO_ANSWER):
                self.register(daemon)

        self.joining = threading.Thread(target=register_or_not)
        self.joining.start()

    def step(self, daemon, need):
        """Takes up the latest order that has reached it, whatever becomes of the daemon."""
        taken = self.order
        if taken is not None:
            self.uses, self.order = max(taken[1], self.floor), None
        self.steps += 1
        events = [{"type": "need", "bytes": need}]
        if taken is not None:
            events.append({"type": "budget", "seq": taken[0], "step": self.steps,
                           "budget_bytes": self.uses})
        reply = daemon.events(self.id, *events)
        if reply.status == 404:
            return self.register(daemon)
        reply = daemon.get(f"/v1/runs/{self.id}/commands?after={self.after}&wait=0")
        if reply.status == 404:
            return self.register(daemon)
        for command in reply.json()["commands"]:
            self.after = command["seq"]
            if command["type"] == "set_budget":
                self.order = (command["seq"], command["budget_bytes"])


class World:
    def __init__(self, daemon, seed, process):
        self.daemon, self.random, self.process = daemon, random.Random(seed), process
        self.runs, self.ceiling, self.asked = [], TOTAL, {TOTAL}
        self.killer, self.kills, self.looks, self.steps, self.started = None, 0, 0, 0, 0
        assert daemon.put(GROUP, {"total": TOTAL}).status == 200

    def used(self):
        return sum(run.uses for run in self.runs)

    def look(self):
        """The sum is checked against the daemon's word and against the total."""
        # Where others had not come down within 2 s a run began with its floor: the log says so.
        forced = self.daemon.log.count("group over its total")
        used, group = self.used(), group_of(self.daemon)
        if self.daemon.log.count("group over its total") == forced == 0:
            assert used <= group["assigned_bytes"] <= group["total_bytes"] <= self.ceiling, (
                used, group, self.ceiling)
            self.ceiling = group["total_bytes"]
        assert used <= group["assigned_bytes"] <= group["total_bytes"]
        total = group["pending_total_bytes"] or group["total_bytes"]
        assert total in self.asked
        self.looks += 1
        return group

    def start(self):
        if len(self.runs) >= 6:
            return
        if not self.runs:
            wait_for("what the dead had", lambda: self.look()["assigned_bytes"] == 0)
        self.started += 1
        self.runs.append(Run(f"run{self.started}", self.random.randrange(1, TOTAL),
                             self.random.randrange(1, TOTAL // 50), self.process()))
        self.runs[-1].join(self.daemon)

    def end(self, run):
        dies = self.random.random() < 0.3
        self.runs.remove(run)
        run.process.kill()
        run.process.wait()
        if not dies:
            self.daemon.events(run.id, {"type": "end", "status": "ok"})

    def set_total(self):
        total = self.random.randrange(TOTAL // 2, TOTAL)
        # Where the answer is lost, either may hold.
        self.asked.add(total)
        before, self.ceiling = self.ceiling, max(self.ceiling, total)
        reply = self.daemon.put(GROUP, {"total": total})
        if reply.status != 200:
            self.ceiling = before
            return
        self.asked, self.ceiling = {total}, reply.json()["total_bytes"]

    def act(self):
        what = self.random.random()
        if what < 0.1 or not self.runs:
            return self.start()
        run = self.random.choice(self.runs)
        if run.joining is not None:
            if run.joining.is_alive():
                return
            run.joining.join()
            run.joining = None
        if run.id == "":
            return run.join(self.daemon)
        if what < 0.13:
            return self.end(run)
        if what < 0.18:
            return self.set_total()
        self.steps += 1
        return run.step(self.daemon, self.random.randrange(TOTAL))

    def kill_soon(self):
        """While requests are under way, or between two of them."""
        # Where it strikes does not matter, only that places differ.
        delay = self.random.choice([0, self.random.random() * 0.02])
        self.kills += 1
        self.killer = threading.Timer(delay, self.daemon.process.kill)
        self.killer.start()

    def turn(self):
        if self.killer is None and self.random.random() < 0.05:
            self.kill_soon()
        try:
            self.act()
            self.look()
        except NO_ANSWER:
            assert self.killer is not None, self.daemon.log
            self.restart()

    def restart(self):
        self.killer.join()
        self.killer = None
        self.daemon.process.wait()
        assert self.used() <= self.ceiling
        self.daemon.start()
        self.look()

    def stop(self):
        for thread in [self.killer, *(run.joining for run in self.runs)]:
            if thread is not None:
                thread.join()


@pytest.mark.parametrize("seed", range(1, 9))
def test_sum_never_exceeds_the_total_whenever_the_daemon_is_killed(seed, process):
    with Daemon(config={"run_timeout_seconds": 1}) as daemon:
        world = World(daemon, seed, process)
        try:
            for _ in range(300):
                world.turn()
        finally:
            world.stop()
        print(f"{world.kills} kills, {world.started} runs, {world.steps} steps, "
              f"{world.looks} looks")
