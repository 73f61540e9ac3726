"""Random steps under a budget on the emulated device, with what else happens on a card: failing
allocations, an emptied cache, others that take and give back memory, other streams, exceptions,
evaluations, budgets that move.

Usage: random_steps.py STEPS SEED [soft|hard]; the last line is JSON.
"""

import ctypes
import json
import random
import sys

import torch
from torch import nn

import pudica
from pudica._forced import operator_seconds

MIB = 1 << 20
WIDTH = 512


class Failing(Exception):
    """In the middle of a forward, as from a user's own check."""


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        block = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 6, enable_nested_tensor=False)
        self.fails = False

    def forward(self, x):
        x = self.blocks(x)
        if self.fails:
            raise Failing
        return x.mean()


class Others:
    """Of the same card, beside torch's allocator: another process, as far as bytes go."""

    def __init__(self):
        self.runtime = ctypes.CDLL(None)
        self.held = []

    def take(self, count):
        pointer = ctypes.c_void_p()
        if self.runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(count)) == 0:
            self.held.append(pointer)
        else:
            self.runtime.cudaGetLastError()

    def give_back(self):
        while self.held:
            self.runtime.cudaFree(self.held.pop())


class Run:
    def __init__(self, seed, mode):
        self.draw = random.Random(seed)
        self.model = Model().cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.budget = 700 * MIB
        self.handle = pudica.attach(self.model, budget=self.budget, enforce=mode, daemon=False)
        self.others, self.stream = Others(), torch.cuda.Stream()
        self.counts = dict.fromkeys(("steps", "out_of_memory", "failing", "over"), 0)

    def shape(self):
        return torch.zeros(8, self.draw.randrange(1, 65) * 8, WIDTH, device="cuda")

    def disturb(self):
        what = self.draw.randrange(12)
        if what == 0:
            torch.cuda.empty_cache()
        elif what == 1:
            self.budget = self.draw.randrange(550, 1000) * MIB
            self.handle.set_budget(self.budget)
        elif what == 2:
            self.others.take(self.draw.randrange(1, 64) * MIB)
        elif what == 3:
            self.others.give_back()
        elif what == 4:
            with torch.no_grad():
                self.model.eval()(self.shape())
            self.model.train()
        elif what == 5:
            with torch.cuda.stream(self.stream):
                block = torch.empty(self.draw.randrange(1, 8 * MIB), device="cuda")
            block.record_stream(torch.cuda.current_stream())

    def step(self):
        self.model.fails = self.draw.randrange(25) == 0
        torch.cuda.reset_peak_memory_stats()
        try:
            loss = self.model(self.shape())
            if self.draw.randrange(20) > 0:  # else a forward whose backward never comes
                loss.backward()
                self.optimizer.step()
                self.counts["steps"] += 1
        except Failing:
            self.counts["failing"] += 1
        except torch.OutOfMemoryError:
            self.counts["out_of_memory"] += 1
        self.model.fails = False
        self.optimizer.zero_grad()
        self.counts["over"] += torch.cuda.max_memory_reserved() > self.budget

    def train(self, steps):
        for _ in range(steps):
            self.disturb()
            self.step()
        stats = self.handle.stats()
        self.handle.detach()
        self.others.give_back()
        fraction = torch.cuda.get_per_process_memory_fraction()
        in_use = pudica._native.ops.bytes_in_use("cuda:0")
        return {**self.counts, "failures": stats["failures"], "overruns": stats["overruns"],
                "revocations": stats["revocations"], "recomputed": stats["recomputed_layers"],
                "fraction": fraction, "in_use": in_use,
                "active": torch.cuda.memory_stats()["active_bytes.all.current"]}


if __name__ == "__main__":
    with operator_seconds():
        run = Run(int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "soft")
    print(json.dumps(run.train(int(sys.argv[1]))))
