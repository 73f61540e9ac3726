"""Two real processes: each rank plans for itself, and gradients are those of the run without."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import distributed_jobs as jobs
import pytest
import torch
import torch.multiprocessing
import training_support as support

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo")
_LONGEST_S = 540
_AMPLE = 1 << 40

Task = tuple[str, list[dict[str, Any]]]


def run_tasks(folder: pathlib.Path, tasks: list[Task]) -> list[list[dict[str, Any]]]:
    """The reports of each task by rank, from one pair of processes. Fails where one hangs."""
    queue: Any = torch.multiprocessing.get_context("spawn").SimpleQueue()
    pair: Any = torch.multiprocessing.start_processes(
        jobs.work, args=(str(folder), tasks, queue), nprocs=jobs.WORLD, join=False,
        start_method="spawn")
    found: list[list[dict[str, Any]]] = [[{} for _ in range(jobs.WORLD)] for _ in tasks]
    deadline = time.monotonic() + _LONGEST_S
    try:
        done = False
        while not done and time.monotonic() < deadline:
            done = pair.join(timeout=0.2)
            while not queue.empty():
                task, rank, report = queue.get()
                assert "error" not in report, f"rank {rank}: {tasks[task]}: {report['error']}"
                found[task][rank] = report
        assert done, f"hangs; so far {found}"
    finally:
        for process in pair.processes:
            process.kill()
    return found


@pytest.fixture
def configs(tmp_path: pathlib.Path) -> dict[str, str]:
    return {
        "full": support.config_file(tmp_path, policy="full"),
        "some": support.config_file(tmp_path, policy="every_n", log={"level": "error"}),
        "pudica": support.config_file(tmp_path, policy="pudica", warmup={"min_steps": 2}),
    }


def both(name: str, **arguments: Any) -> Task:
    return name, [dict(arguments) for _ in range(jobs.WORLD)]


def each(task: Task, *differences: dict[str, Any]) -> Task:
    name, arguments = task
    return name, [{**given, **other} for given, other in zip(arguments, differences)]


def ways_of(plain: Task, configs: dict[str, str]) -> list[Task]:
    """Without pudica, with other fixed plans on each rank, with plans and a tight budget on one,
    with plans drawn at random, joint segments among them."""
    return [
        plain,
        each(plain, {"config": configs["full"]}, {"config": configs["some"]}),
        each(plain, {"config": configs["pudica"], "budget": 1 << 18},
             {"config": configs["pudica"]}),
        *(each(plain, {"policy": f"random:seed={seed}"}, {"policy": f"random:seed={9 * seed}"})
          for seed in (1, 2)),
    ]


_WAYS = 5


def check_ways(reports: list[list[dict[str, Any]]]) -> None:
    """Of one or several ways_of()."""
    for first in range(0, len(reports), _WAYS):
        check(reports[first : first + _WAYS])
        full, some = reports[first + 1]
        assert full["recomputed_layers"] >= full["layer_calls"] - 4  # its first may be kept, tried
        assert 0 < some["recomputed_layers"] < some["layer_calls"]


def check(reports: list[list[dict[str, Any]]]) -> None:
    """The first is the one without pudica."""
    plain = reports[0]
    for planned in reports[1:]:
        for rank in range(jobs.WORLD):
            assert planned[rank]["gradients"] == plain[rank]["gradients"]
            assert planned[rank]["failures"] == 0
            assert planned[rank]["steps"] > 0


def test_ddp_with_another_plan_on_each_rank(
    tmp_path: pathlib.Path, configs: dict[str, str]
) -> None:
    ways: list[tuple[dict[str, Any], int]] = [
        ({}, 1), ({}, 2), ({"find_unused_parameters": True}, 1),
        ({"find_unused_parameters": True}, 2), ({"static_graph": True}, 1)]
    tasks: list[Task] = []
    for options, accumulate in ways:
        plain = both("ddp", config=None, budget=_AMPLE, options=options, accumulate=accumulate,
                     count=4)
        tasks += ways_of(plain, configs)
    found = run_tasks(tmp_path, tasks)
    check_ways(found)
    for first in range(0, len(found), _WAYS):
        assert found[first + 2][0]["recomputed_layers"] > found[first + 2][1]["recomputed_layers"]


@pytest.mark.parametrize("order", ["attach first", "shard first"])
def test_fsdp2_with_another_plan_on_each_rank(
    tmp_path: pathlib.Path, configs: dict[str, str], order: str
) -> None:
    tasks: list[Task] = []
    for half in (False, True):
        plain = both("fsdp2", config=None, budget=_AMPLE, order=order, half=half, reshard=True)
        tasks += ways_of(plain, configs)
    found = run_tasks(tmp_path, tasks)
    check_ways(found)
