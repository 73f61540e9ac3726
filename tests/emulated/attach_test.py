"""pudica.attach on the emulated device: budgets on what torch's allocator has reserved."""

import json
import subprocess
import sys

import pytest

from emulated_run import ROOT, emulated

COMMON = """
import json, random, sys
import torch
from torch import nn
import pudica
from pudica._forced import operator_seconds

def encoder(dropout):
    block = nn.TransformerEncoderLayer(1024, 8, 4096, dropout=dropout, batch_first=True)
    return nn.TransformerEncoder(block, 6, enable_nested_tensor=False).to("cuda").train()

def step(model, optimizer, length):
    model(torch.zeros(16, length, 1024, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()

def bytes_of(kind, what="peak"):
    return torch.cuda.memory_stats()[f"{kind}_bytes.all.{what}"]
"""


def said(code, *arguments, **environment):
    """What the last line that a program prints says in JSON."""
    done = emulated(sys.executable, "-c", COMMON + code, *arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


BUDGETS = """
mode, dropout = sys.argv[1], float(sys.argv[2])
model = encoder(dropout)
optimizer = torch.optim.AdamW(model.parameters())
step(model, optimizer, 8)
base = bytes_of("allocated", "current")
torch.cuda.reset_peak_memory_stats()
step(model, optimizer, 384)
everything = bytes_of("allocated")
budget = base + (everything - base) * 55 // 100
torch.cuda.empty_cache()
with operator_seconds():
    handle = pudica.attach(model, budget=budget, enforce=mode)
random.seed(4)
over, planned, far = 0, 0, 0
for _ in range(60):
    torch.cuda.reset_peak_memory_stats()
    step(model, optimizer, random.randrange(2, 49) * 8)
    over += bytes_of("reserved") > budget
    last = handle.stats()["last_step"]
    assert last["reserved_peak_bytes"] == bytes_of("reserved"), last
    assert last["peak_bytes"] <= bytes_of("active"), last
    if last["predicted_peak_bytes"] and not last["learning"]:
        planned += 1
        far += abs(last["predicted_reserved_bytes"] - last["reserved_peak_bytes"]) > budget // 10
stats = handle.stats()
handle.detach()
print(json.dumps({"over": over, "planned": planned, "far": far, "stats": stats,
                  "fraction": torch.cuda.get_per_process_memory_fraction()}))
"""


@pytest.mark.parametrize(("mode", "dropout", "allocator"), [  # any two of each
    ("soft", "0.1", ""), ("soft", "0", "expandable_segments:False"),
    ("hard", "0", ""), ("hard", "0.1", "expandable_segments:False")])
def test_what_is_reserved_stays_within_the_budget(mode, dropout, allocator):
    seen = said(BUDGETS, mode, dropout, PYTORCH_ALLOC_CONF=allocator,
                    PUDICA_EMULATED_CARD="A100-40")
    assert seen["over"] == 0
    assert seen["stats"]["overruns"] == 0
    assert seen["stats"]["recomputed_layers"] > 0, "attention without dropout is no exception"
    assert seen["stats"]["failures"] == 0
    assert seen["planned"] > 20
    assert seen["far"] <= seen["planned"] // 5
    assert seen["fraction"] == 1, "the user's own limit is back"


SERVED = """
import ctypes
from pudica._emulated import counter
reads = counter("reads", ctypes.c_uint64)
model = encoder(0.1)
optimizer = torch.optim.AdamW(model.parameters())
with operator_seconds():
    handle = pudica.attach(model, budget="2.6GiB", policy=sys.argv[1])
random.seed(4)
steps = int(sys.argv[2])
for number in range(steps):
    if number == steps // 2:
        read, waited = reads(), torch.cuda.memory_stats()["num_alloc_retries"]
    step(model, optimizer, random.choice([320, 384, 448]))
stats = handle.stats()
print(json.dumps({"reads": reads() - read, "stats": stats,
                  "waits": torch.cuda.memory_stats()["num_alloc_retries"] - waited,
                  "modes": [mode for plan in handle.plans() for mode in plan["plan"]["modes"]]}))
"""


def test_planned_steps_wait_for_nothing():
    """Neither for what a mask holds, nor, but rarely, for a cache that does not serve."""
    seen = said(SERVED, "pudica", "100", PUDICA_EMULATED_CARD="A100-40")
    assert any(mode.startswith("selective") for mode in seen["modes"]), "masks are held as bits"
    assert seen["reads"] == 0
    assert seen["waits"] == 0, "less is left free once in 128 steps, at most"
    assert seen["stats"]["overruns"] == seen["stats"]["failures"] == 0


def test_masks_that_are_packed_as_a_layer_ends_are_not_asked_for_either():
    seen = said(SERVED, "dtr", "24", PUDICA_EMULATED_CARD="A100-40")
    assert seen["stats"]["recomputed_calls"] > 0
    assert seen["reads"] == 0


@pytest.mark.parametrize(("words", "allocator", "expandable"), [
    ("", "", True),
    ("", "max_split_size_mb:200", True),
    ("", "expandable_segments:False", False),
    ('allocator="expandable"', "expandable_segments:False,max_split_size_mb:200", True)])
def test_segments_are_expandable_under_a_budget_unless_the_user_says_no(words, allocator,
                                                                        expandable):
    seen = said(f"""
model = encoder(0.1)
handle = pudica.attach(model, budget="8GiB", {words})
more = torch.empty(33 << 20, dtype=torch.uint8, device="cuda")
segments = [s["is_expandable"] for s in torch.cuda.memory_snapshot()
            if s["total_size"] >= 33 << 20]
split = torch.cuda.memory._snapshot()["allocator_settings"]["max_split_size"]
handle.detach()
after = torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"]
print(json.dumps([segments, split, after]))
""", PYTORCH_ALLOC_CONF=allocator)
    assert seen == [[expandable], 200 << 20 if "max_split" in allocator else -1, bool(words)]


def test_a_driver_that_maps_no_pages_is_named():
    seen = said("""
model = encoder(0.1)
handle = pudica.attach(model, budget="8GiB")
handle.detach()
try:
    pudica.attach(model, budget="8GiB", allocator="expandable")
except pudica.AttachError as error:
    print(json.dumps(str(error)))
""", PUDICA_EMULATED_PAGES="0")
    assert seen == 'allocator is "expandable"; device cuda:0: its driver cannot map memory by pages'


def test_another_backend_is_refused_with_the_remedy():
    seen = said("""
model = encoder(0.1)
try:
    pudica.attach(model, budget="8GiB")
    print(json.dumps("attached"))
except pudica.AttachError as error:
    print(json.dumps(str(error)))
""", PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
    assert "cudaMallocAsync" in seen and "PYTORCH_ALLOC_CONF" in seen


def test_auto_is_of_what_this_process_could_get():
    seen = said("""
others = torch.cuda.mem_get_info()[1] // 2
import ctypes
pointer = ctypes.c_void_p()
assert ctypes.CDLL(None).cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(others)) == 0
model = encoder(0.1)
handle = pudica.attach(model, budget="auto")
print(json.dumps([handle.budget, torch.cuda.mem_get_info()[1], others]))
""")
    budget, total, others = seen
    assert budget < total - others
    assert budget > (total - others) * 8 // 10


def test_a_device_without_an_index_is_the_current_one():
    seen = said("""
torch.cuda.set_device(1)
model = encoder(0.1)
handle = pudica.attach(model, budget="8GiB")
optimizer = torch.optim.SGD(model.parameters())
for length in (8, 16, 24):
    step(model, optimizer, length)
stats = handle.stats()
print(json.dumps([stats["steps"], stats["failures"], stats["last_step"]["peak_bytes"]]))
""", PUDICA_EMULATED_DEVICES="2")
    steps, failures, peak = seen
    assert steps == 3 and failures == 0 and peak > 0


def test_a_training_takes_the_same_bytes_each_time(tmp_path):
    """And so a card's can be laid beside it: scripts/gpu_check."""
    program = ROOT / "scripts/lib/gpu_steps.py"
    files = [tmp_path / name for name in ("first.json", "second.json")]
    for file in files:
        done = emulated("--card", "H100", sys.executable, program, "train", file)
        assert done.returncode == 0, done.stderr
    done = subprocess.run([sys.executable, program, "table", *files], text=True,
                          capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "0 of 40 steps took other bytes" in done.stdout
    assert " 0 over the budget by reserved bytes; 0 failures" in done.stdout


@pytest.mark.parametrize("allocator", ["expandable_segments:True", "expandable_segments:False"])
@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_whatever_happens_on_the_card_nothing_is_lost(mode, allocator):
    """Failing allocations, others on the card, streams that lag, exceptions, budgets that move."""
    done = emulated(
        "--card", "T4", sys.executable, ROOT / "tests/emulated/random_steps.py", "120", "3", mode,
        PYTORCH_ALLOC_CONF=allocator, PUDICA_EMULATED_BYTES=str(1800 << 20),
        PUDICA_EMULATED_ORDER="clock", PUDICA_EMULATED_FREED="fault",
        PUDICA_EMULATED_FAIL_MALLOC=",".join(map(str, range(7, 400, 37))))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["failures"] == 0 and seen["out_of_memory"] == 0 and seen["overruns"] == 0
    assert seen["over"] == 0, "by what is reserved"
    assert seen["failing"] > 0 and seen["recomputed"] > 0
    assert seen["fraction"] == 1, "the user's own limit is back"
    if allocator.endswith("True"):
        assert seen["in_use"] == seen["active"], "no drift"


PAGES = """
model = encoder(0)
optimizer = torch.optim.SGD(model.parameters())
step(model, optimizer, 8)
base = bytes_of("allocated", "current")
torch.cuda.reset_peak_memory_stats()
step(model, optimizer, 384)
budget = base + (bytes_of("allocated") - base) * 55 // 100
torch.cuda.empty_cache()
with operator_seconds():
    handle = pudica.attach(model, budget=budget)
random.seed(4)
mapped, reserved, binding = [], 0, 0
for _ in range(40):
    before = torch.cuda.memory_stats()["num_device_alloc"]
    torch.cuda.reset_peak_memory_stats()
    step(model, optimizer, random.randrange(8, 13) * 32)
    mapped.append(torch.cuda.memory_stats()["num_device_alloc"] - before)
    reserved = max(reserved, bytes_of("reserved"))
    binding += handle.stats()["last_step"]["recomputed_calls"] > 0
print(json.dumps({"mapped": mapped, "over": reserved > budget, "binding": binding}))
"""


def test_pages_that_serve_another_shape_stay():
    seen = said(PAGES, PUDICA_EMULATED_CARD="A100-40")
    assert not seen["over"]
    assert seen["binding"] > 20
    # Were they given back between steps, each would map some 20 of them anew.
    assert sum(seen["mapped"][20:]) / 20 < 10, seen["mapped"]
