"""Property: no run dies, goes over its budget or trains otherwise for what lies in the daemon's
pool of learned models under its fingerprint: flipped bits, bytes that were scaled, another model's
honest state. Each run is compared with the same one without a daemon.

PUDICA_POISONED_RUNS: as many, from the seed PUDICA_RANDOM_SEED on.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import pytest
import small
import torch
import training_support as support
from waiting import wait_for

import pudica
from pudica._forced import plans_of

PUDICAD = pathlib.Path(os.environ.get("PUDICA_BUILD_BIN", "nowhere")) / "pudicad"
COUNT = int(os.environ.get("PUDICA_POISONED_RUNS", "60"))
SEED = int(os.environ.get("PUDICA_RANDOM_SEED", "24"))
STEPS = 12
DEADLINE_S = 20

MODELS = ({"layers": 4, "hidden": 32}, {"layers": 3, "hidden": 48})
SHARES = (0.0, 0.02, 0.3)  # of the way from the floor to keeping all
FACTORS = (0.1, 0.0, -1.0, 0.5, 2.0, 10.0, 1e9)

pytestmark = pytest.mark.skipif(
    not PUDICAD.exists(), reason="PUDICA_BUILD_BIN names no folder with pudicad"
)


# -- the daemon ------------------------------------------------------------------------------


class Connection(http.client.HTTPConnection):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__("pudica", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Daemon:
    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        connection = Connection(self._path)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, target, text, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def state(self, fingerprint: str) -> str | None:
        status, answer = self.ask("GET", "/v1/models/" + fingerprint.replace(" ", "%20"))
        return answer["state"] if status == 200 else None

    def forget(self, fingerprint: str) -> None:
        self.ask("DELETE", "/v1/models/" + fingerprint.replace(" ", "%20"))

    def teach(self, fingerprint: str, state: str) -> None:
        """A run says that this is what it learned, and ends."""
        status, answer = self.ask("POST", "/v1/runs", {
            "protocol": 1, "protocol_min": 1, "name": "teacher", "pid": os.getpid(), "user": "",
            "command": "", "device": "cpu", "model": "", "policy": "pudica", "group": "",
            "fingerprint": fingerprint, "versions": {}, "budget_bytes": 1 << 30,
            "floor_bytes": None, "keep_all_bytes": None, "steps_total": None})
        assert status == 201, answer
        # What the daemon makes of the state is its business: a refusal is none of the request's.
        self.ask("POST", f"/v1/runs/{answer['id']}/events", {"dropped": 0, "events": [
            {"type": "model", "state": state}, {"type": "end", "status": "ok"}]})


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("pool")
    path = folder / "private" / "pudicad.sock"
    process = subprocess.Popen(
        [PUDICAD, "--socket", path, "--database", folder / "runs.db"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    wait_for("the daemon's socket", path.exists)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUDICA_SOCKET", str(path))
        yield Daemon(path)
    process.terminate()
    assert process.wait(DEADLINE_S) == 0, "whatever it was given"


# -- a training ------------------------------------------------------------------------------


class Course(NamedTuple):
    died: bool
    over: list[int]  # steps beyond the budget
    peaks: list[int]
    bits: str
    refused: int  # states from the pool
    planned: int  # steps that were no learning steps


class Run(NamedTuple):
    kind: int  # of MODELS
    budget: int
    hard: bool


def course(run: Run, daemon: bool) -> Course:
    model = small.make(**MODELS[run.kind])
    steps: list[Any] = []
    died = False
    enforce: Literal["hard", "soft"] = "hard" if run.hard else "soft"
    with pudica.attach(model, run.budget, daemon=daemon, enforce=enforce) as handle:
        if daemon:
            wait_for("the registration", lambda: handle.stats()["daemon"]["registered"])
        try:
            small.train(model, STEPS, each=lambda _: steps.append(handle.stats()["last_step"]))
        except torch.OutOfMemoryError:
            died = True
        refused = handle.snapshot()["counters"]["refused_states"] if daemon else 0
    peaks = [step["peak_bytes"] for step in steps]
    over = [number for number, peak in enumerate(peaks) if peak > run.budget]
    planned = sum(not step["learning"] for step in steps)
    return Course(died, over, peaks, support.digest(model), refused, planned)


@functools.cache
def alone(run: Run) -> Course:
    return course(run, daemon=False)


@functools.cache
def ends(kind: int) -> tuple[int, int]:
    """The largest peaks with every layer recomputed, and with every layer kept."""
    found = []
    for policy in ("full", "none"):
        with plans_of(policy):
            # The first step keeps its layers, to try whether they can be run again.
            found.append(max(course(Run(kind, 1 << 40, False), daemon=False).peaks[1:]))
    return found[0], found[1]


# -- states ----------------------------------------------------------------------------------


def fnv(text: bytes) -> int:
    value = 0xcbf29ce484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


class State(NamedTuple):
    """A learned state without its checksums: the controller's part, and the predictor's."""

    head: str
    predictor: str

    @staticmethod
    def of(text: str) -> State:
        _, _, length, rest = text.split("\n", 3)  # two lines of the seal, "fingerprint N"
        size = int(length.removeprefix("fingerprint "))
        body = rest[size + 1:]
        at = body.rindex("pudica-predictor")
        return State(body[:at], body[at:body.rindex("checksum ")])

    def sealed(self, fingerprint: str) -> str:
        predictor = self.predictor.encode(errors="surrogateescape")
        body = self.head + self.predictor + f"checksum {fnv(predictor)}\n"
        content = f"fingerprint {len(fingerprint)}\n{fingerprint}\n{body}"
        mark = format(fnv(content.encode(errors="surrogateescape")), "x")
        return f"pudica-state 1\n{mark}\n{content}"

    def scaled(self, factor_of: Callable[[int], float]) -> State:
        """Bytes of each sample by the factor of its segment; its log goes along."""
        out, segment = [], -1
        for line in self.predictor.split("\n"):
            segment += line.startswith("segment ")
            words = line.split(" ")
            if words[0] == "sample":
                words[1:] = map(str, self._sample([int(w) for w in words[1:]], factor_of(segment)))
            out.append(" ".join(words))
        return State(self.head, "\n".join(out))

    @staticmethod
    def _sample(numbers: list[int], factor: float) -> list[int]:
        # The shape of two dimensions, net and peak, whether there is a log, its length, the log.
        log = [int(factor * delta) for delta in numbers[6:]]
        net, peak = (int(factor * number) for number in numbers[2:4])
        if log:
            live = [sum(log[:end + 1]) for end in range(len(log))]
            net, peak = live[-1], max(0, *live)
        return [*numbers[:2], net, peak, *numbers[4:6], *log]

    def edited(self, random: random.Random) -> State:
        parts = [self.head, self.predictor]
        for _ in range(random.randint(1, 4)):
            part = random.choice((0, 1, 1, 1))
            at = random.randrange(len(parts[part]))
            flipped = chr(ord(parts[part][at]) ^ 1 << random.randrange(7))
            new = random.choice((str(random.randrange(10)), flipped))
            parts[part] = parts[part][:at] + new + parts[part][at + 1:]
        return State(*parts)


def with_flipped_bit(text: str, random: random.Random) -> str:
    at = random.randrange(len(text))
    return text[:at] + chr(ord(text[at]) ^ 1 << random.randrange(7)) + text[at + 1:]


@pytest.fixture(scope="module")
def learned(daemon: Daemon) -> list[tuple[str, str]]:
    """Of each model its fingerprint and what an honest run of it told the daemon."""
    out = []
    for kind in range(len(MODELS)):
        course(Run(kind, ends(kind)[1], False), daemon=True)
        _, runs = daemon.ask("GET", "/v1/runs?all=true")
        fingerprint = runs["runs"][-1]["fingerprint"]
        out.append((fingerprint, wait_for("the state", lambda f=fingerprint: daemon.state(f))))
    assert len({fingerprint for fingerprint, _ in out}) == len(MODELS)
    return out


def poison(learned: list[tuple[str, str]], kind: int, random: random.Random) -> tuple[str, str]:
    """How it was made, and a state under the fingerprint of the model of that kind."""
    fingerprint, honest = learned[kind]
    state = State.of(honest)
    how = random.choice(("flipped", "edited", "scaled", "partly", "another", "honest"))
    if how == "flipped":  # the checksum tells
        return how, with_flipped_bit(honest, random)
    if how == "edited":
        return how, state.edited(random).sealed(fingerprint)
    if how == "scaled":
        factor = random.choice(FACTORS)
        return f"scaled by {factor}", state.scaled(lambda _: factor).sealed(fingerprint)
    if how == "partly":
        factors = [0.02 * random.randrange(200) if random.random() < 1 / 3 else 1.0
                   for _ in range(64)]
        return how, state.scaled(lambda segment: factors[segment % 64]).sealed(fingerprint)
    if how == "another":
        return how, State.of(learned[1 - kind][1]).sealed(fingerprint)
    return how, honest


# -- the property ----------------------------------------------------------------------------


def test_a_state_is_taken_apart_and_sealed_as_it_was(learned: list[tuple[str, str]]) -> None:
    for fingerprint, state in learned:
        assert State.of(state).sealed(fingerprint) == state
        assert State.of(state).scaled(lambda _: 1.0).sealed(fingerprint) == state


def test_no_run_is_worse_off_for_a_state_from_the_pool(
    daemon: Daemon, learned: list[tuple[str, str]]
) -> None:
    print(f"{COUNT} runs from seed {SEED} (PUDICA_POISONED_RUNS, PUDICA_RANDOM_SEED)")
    taken = refused = spared = 0
    for seed in range(SEED, SEED + COUNT):
        generator = random.Random(seed)
        kind = generator.randrange(len(MODELS))
        floor, most = ends(kind)
        budget = int(floor + generator.choice(SHARES) * (most - floor))
        run = Run(kind, budget, hard=generator.random() < 0.5)
        how, state = poison(learned, kind, generator)
        fingerprint = learned[kind][0]
        daemon.forget(fingerprint)
        daemon.teach(fingerprint, state)
        taken += daemon.state(fingerprint) is not None
        with_pool, without = course(run, daemon=True), alone(run)
        told = f"seed {seed}: {how}, {run}"
        assert with_pool.died <= without.died, told
        assert len(with_pool.over) <= len(without.over), (told, with_pool, without)
        if not with_pool.died and not without.died:
            assert with_pool.bits == without.bits, told
        refused += with_pool.refused
        spared += with_pool.planned > without.planned
    print(f"{taken} taken by the pool, {refused} then refused by a run, {spared} runs spared steps")
    if COUNT >= 60:
        assert taken > COUNT // 4 and refused > 0 and spared > 0, "the test tests something"
