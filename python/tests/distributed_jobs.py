"""What two processes run in test_distributed.py. Each returns a dict of plain values."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import pathlib
import traceback
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WORLD = 2


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1),
                                  nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.wide(x)


class Net(nn.Module):
    """Blocks; `unused` holds parameters that no forward reads."""

    def __init__(self, unused: bool = False, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))
        self.head = nn.Linear(width, 40)
        if unused:
            self.spare = nn.Linear(width, width)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x).square().mean()


def batch(rank: int, step: int) -> torch.Tensor:
    """Of another shape on each rank and step."""
    made = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, 40, (2 + rank, 7 + 5 * rank + 3 * step), generator=made)


def gradients(model: nn.Module) -> str:
    found = hashlib.sha256()
    for name, parameter in model.named_parameters():
        found.update(name.encode())
        gradient = parameter.grad
        if gradient is not None:
            local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            found.update(local.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _steps(run: Any, model: nn.Module, rank: int, accumulate: int, count: int) -> list[str]:
    seen = []
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(count):
        optimizer.zero_grad()
        for part in range(accumulate):
            last = part == accumulate - 1
            torch.manual_seed(9 + step + rank + part)  # other dropout on each rank
            with contextlib.nullcontext() if last else run.no_sync():
                run(batch(rank, step * accumulate + part)).backward()
        seen.append(gradients(model))
        optimizer.step()
    return seen


# `config`: without pudica where neither it nor `policy` is there.


def ddp(rank: int, config: str | None, budget: int, options: dict[str, Any], accumulate: int,
        count: int, policy: str | None = None) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Net(unused=options.get("find_unused_parameters", False))
    run = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02, **options)
    handle = attach(model, config, budget, policy)
    seen = _steps(run, model, rank, accumulate, count)
    return report(handle, seen)


def fsdp2(rank: int, config: str | None, budget: int, order: str, half: bool, reshard: bool,
          policy: str | None = None) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.manual_seed(0)
    model = Net()
    handle = attach(model, config, budget, policy) if order == "attach first" else None
    settings: dict[str, Any] = {
        "mesh": init_device_mesh("cpu", (WORLD,)), "reshard_after_forward": reshard}
    if half:
        settings["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, **settings)
    fully_shard(model, **settings)
    if order == "shard first":
        handle = attach(model, config, budget, policy)
    seen = _steps(model, model, rank, 1, 3)
    return report(handle, seen)


def attach(model: nn.Module, config: str | None, budget: int, policy: str | None) -> Any:
    if config is None and policy is None:
        return None
    import pudica
    from pudica._forced import operator_seconds, plans_of

    with operator_seconds(), plans_of(policy) if policy else contextlib.nullcontext():
        return pudica.attach(model, budget, config=config, daemon=False)


def report(handle: Any, seen: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"gradients": seen}
    if handle is not None:
        stats = handle.stats()
        found.update({key: stats[key] for key in (
            "steps", "recomputed_layers", "layer_calls", "failures", "highest_peak_bytes",
            "overruns", "learning_steps")})
        handle.detach()
    return found


JOBS = {"ddp": ddp, "fsdp2": fsdp2}


def work(rank: int, folder: str, tasks: list[tuple[str, list[dict[str, Any]]]], queue: Any) -> None:
    """Each task: a job's name and, for each rank, its arguments."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{pathlib.Path(folder) / 'meeting'}", rank=rank,
        world_size=WORLD, timeout=datetime.timedelta(seconds=120))
    for number, (name, arguments) in enumerate(tasks):
        try:
            queue.put((number, rank, JOBS[name](rank, **arguments[rank])))
        except Exception:  # noqa: BLE001  (told to the test; the other rank times out)
            queue.put((number, rank, {"error": traceback.format_exc()}))
            break
        dist.barrier()
    dist.destroy_process_group()
