"""A training under a budget on a CUDA device, byte by byte: predicted, and on a real device beside
the emulated one. Plans hang on seconds of the operators' clock, so that both make the same.

    gpu_steps.py train FILE          trains on the device that there is, writes what each step took
    gpu_steps.py table REAL EMULATED prints both side by side and in how many steps bytes in use
                                     differ; fails where a step went over its budget
"""

import json
import pathlib
import random
import sys

MIB = 1 << 20
STEPS = 40


def train(file):
    import torch
    from torch import nn

    import pudica
    from pudica._forced import operator_seconds

    torch.manual_seed(1)
    block = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(block, 8, enable_nested_tensor=False).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters())
    draw = random.Random(7)
    rows = []
    with operator_seconds():
        handle = pudica.attach(model, budget="3GiB", daemon=False)
    for _ in range(STEPS):
        length = draw.randrange(4, 65) * 8
        torch.cuda.reset_peak_memory_stats()
        model(torch.zeros(16, length, 1024, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        stats, last = torch.cuda.memory_stats(), handle.stats()["last_step"]
        rows.append({"length": length, "predicted": last["predicted_peak_bytes"],
                     "in_use": last["peak_bytes"], "active": stats["active_bytes.all.peak"],
                     "reserved": stats["reserved_bytes.all.peak"],
                     "recomputed": last["recomputed_layers"], "revocations": last["revocations"]})
    summary = handle.stats()
    out = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__,
           "budget": handle.budget, "overruns": summary["overruns"],
           "failures": summary["failures"], "steps": rows}
    pathlib.Path(file).write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


def mib(value):
    return f"{value / MIB:.2f}" if value else "-"


def table(real_file, emulated_file):
    real, emulated = (json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
                      for file in (real_file, emulated_file))
    print(f"{real['device']}, torch {real['torch']}, budget {mib(real['budget'])} MiB; MiB")
    print(f"{'length':>6} {'predicted':>10} {'in use':>10} {'emulated':>10} {'reserved':>10} "
          f"{'emulated':>10}  recomputed")
    differ = over = 0
    for ours, theirs in zip(real["steps"], emulated["steps"]):
        differ += ours["in_use"] != theirs["in_use"]
        over += ours["reserved"] > real["budget"]
        print(f"{ours['length']:>6} {mib(ours['predicted']):>10} {mib(ours['in_use']):>10} "
              f"{mib(theirs['in_use']):>10} {mib(ours['reserved']):>10} "
              f"{mib(theirs['reserved']):>10}  {ours['recomputed']} and {theirs['recomputed']}")
    print(f"{differ} of {len(real['steps'])} steps took other bytes than on the emulated device; "
          f"{over} over the budget by reserved bytes; {real['failures']} failures")
    return 1 if over or real["failures"] else 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "train":
        train(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "table":
        sys.exit(table(*sys.argv[2:]))
    else:
        sys.exit(__doc__)
