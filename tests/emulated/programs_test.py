"""Programs on the emulated device, as users run them: by scripts/emulated."""

import csv
import json
import os
import sys

from emulated_run import emulated

TRAIN = os.environ["PUDICA_TRAIN"]


def test_a_card_that_there_is_not_is_told_with_those_that_there_are():
    done = emulated("--card", "K80", "true")
    assert done.returncode == 2
    assert "PUDICA_EMULATED_CARD=K80: expected one of T4, V100" in done.stderr


def test_a_setting_that_cannot_be_meant_is_refused():
    done = emulated("--devices", "two", "true")
    assert done.returncode == 2
    assert "PUDICA_EMULATED_DEVICES=two: expected a number from 1 to 16" in done.stderr


def test_a_build_without_it_is_told_how_to_make_it(tmp_path):
    done = emulated("true", PUDICA_EMULATED_DIR=str(tmp_path))
    assert done.returncode == 2
    assert "--target emulated_device" in done.stderr


def test_python_sees_the_cards_and_no_values():
    done = emulated("--card", "T4", "--devices", "2", sys.executable, "-c", """
import torch
print(torch.cuda.device_count(), torch.cuda.get_device_capability(1))
first = torch.ones(8).to("cuda:1")
second = torch.zeros(8).to("cuda:1")
print(torch.equal(first, second), torch.equal(first.cpu(), second.cpu()))
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 (7, 5)", "True False"]
    assert "Overriding" not in done.stderr


WORK = """
import ctypes
runtime = ctypes.CDLL(None)
at = ctypes.c_void_p()
runtime.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(1 << 20))
for _ in range(20):
    runtime.cudaMemsetAsync(at, 0, ctypes.c_size_t(1 << 20), None)
runtime.cudaDeviceSynchronize()
runtime.emulated_device_host_us.restype = ctypes.c_double
print(runtime.emulated_device_host_us())
"""


def test_lags_are_drawn_from_the_seed_and_nothing_else():
    def took(**settings):
        done = emulated(sys.executable, "-c", WORK, **settings)
        assert done.returncode == 0, done.stderr
        return float(done.stdout)

    clock = {"PUDICA_EMULATED_ORDER": "clock"}
    plain = took(**clock)
    lagging = took(**clock, PUDICA_EMULATED_LAG_US="1000", PUDICA_EMULATED_SEED="7")
    assert plain < lagging < plain + 20 * 1000
    assert took(**clock, PUDICA_EMULATED_LAG_US="1000", PUDICA_EMULATED_SEED="7") == lagging
    assert took(**clock, PUDICA_EMULATED_LAG_US="1000", PUDICA_EMULATED_SEED="8") != lagging


ONE_RANK_OF_FOUR = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=4)
model = nn.Sequential(*[nn.Linear(1024, 4096, bias=False) if i % 2 == 0 else
                        nn.Linear(4096, 1024, bias=False) for i in range(8)]).cuda()
if sys.argv[1] == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
else:
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
held = torch.cuda.memory_allocated() >> 20
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(3):
    torch.cuda.reset_peak_memory_stats()
    model(torch.randn(16, 1024, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
print(held, torch.cuda.max_memory_allocated() >> 20)
dist.destroy_process_group()
"""


def test_one_rank_of_many_runs_alone():
    def bytes_of(kind, order):
        done = emulated(sys.executable, "-c", ONE_RANK_OF_FOUR, kind, PUDICA_EMULATED_ORDER=order)
        assert done.returncode == 0, done.stderr
        return [int(word) for word in done.stdout.split()]

    parameters = 8 * 16  # MiB
    held, peak = bytes_of("ddp", "issue")
    assert held == 2 * parameters  # and the buckets
    assert peak > 3 * parameters  # and gradients
    held, sharded_peak = bytes_of("fsdp2", "issue")
    assert held == parameters / 4
    assert sharded_peak < peak / 2
    assert bytes_of("fsdp2", "clock")[0] == held


def train(folder, **environment):
    done = emulated(TRAIN, "--device", "cuda", "--steps", "30", "--batch", "4", "--clock",
                    "operators", "--policy", "none,full,pudica", "--budget", "0.6", "--out",
                    str(folder), **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    policies = {run["name"]: run for run in result["policies"]}
    with open(folder / "steps.csv", encoding="ascii") as file:
        return policies, list(csv.DictReader(file))


# What the seconds of a busy machine have no part in.
SAME = ("policy", "step", "shape", "peak_bytes", "predicted_bytes", "base_bytes", "revocations",
        "overrun", "recomputed_layers")


def test_training_stays_within_its_budget_and_is_the_same_each_time(tmp_path):
    policies, steps = train(tmp_path / "first")
    assert policies["pudica"]["status"] == "ok"
    assert policies["pudica"]["overruns"] == 0
    assert policies["none (capped)"]["oom"]
    assert (policies["full"]["peak_bytes"] < policies["pudica"]["peak_bytes"]
            < policies["none (metered)"]["peak_bytes"])
    # Nor does it hang on when the device does its work.
    _, again = train(tmp_path / "second", PUDICA_EMULATED_ORDER="clock",
                     PUDICA_EMULATED_LAG_US="5000", PUDICA_EMULATED_FREED="fault")
    assert [[step[key] for key in SAME] for step in again] == [
        [step[key] for key in SAME] for step in steps]


def test_step_records_tell_what_the_allocator_had(tmp_path):
    file = tmp_path / "steps.jsonl"
    done = emulated(TRAIN, "--device", "cuda", "--steps", "12", "--batch", "4", "--clock",
                    "operators", "--policy", "pudica", "--budget", "0.6", "--record", str(file),
                    "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(records) == 12
    for record in records:
        told = record["allocator"]
        assert (record["measured_bytes"] <= told["active_bytes"] <= told["reserved_bytes"]
                <= record["budget_bytes"]), record["step"]
        assert 0 <= told["gap_bytes"] < told["reserved_bytes"]
