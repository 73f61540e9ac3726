"""What pudica costs and saves in Python, by CPU clock, with interleaved steps.

trainer: Hugging Face's Trainer on batches of many lengths (the bundled text, byte by byte): without
anything, with gradient_checkpointing=True, and with pudica at the middle of what recomputing all
and keeping all take (both measured first). Parameters of all must come out equal.

lightning: the same under Lightning's Trainer, with gradient_checkpointing_enable() on the model.

idle: a plain loop on a 6-layer BERT of width 256 at 8x128 where nothing needs recomputing, with and
without pudica.

Each way trains in a process of its own, one step each in turn in an order drawn anew, so that what
else the machine does hits all alike; a step's time is the process's CPU time. Reported: the median
of the ratios of steps taken in the same turn, with quartiles.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "bench")]

from origin import measuring_environment, origin  # noqa: E402
from turns import digest, interleave, over, quartiles  # noqa: E402

TEXT = ROOT / "data" / "pride_and_prejudice.txt"
AMPLE = 1 << 40
WARMUP = 10  # turns that are not counted: learning, first allocations


def summary(stats):
    keys = ("steps", "learning_steps", "highest_peak_bytes", "budget_bytes", "layer_calls",
            "recomputed_layers", "revocations", "overruns", "failures")
    return {key: stats[key] for key in keys}


def bert(options, **settings):
    import transformers

    return transformers.BertConfig(vocab_size=256, max_position_embeddings=options.longest,
                                   **settings)


def collate(examples):
    import torch

    words = torch.nn.utils.rnn.pad_sequence(examples, batch_first=True)
    return {"input_ids": words, "attention_mask": (words != 0).long(),
            "labels": words.masked_fill(words == 0, -100)}


def lines_of_text(options):
    import torch

    return [torch.tensor(list(line[: options.longest]))
            for line in TEXT.read_bytes().splitlines() if line]


def masked_model(options):
    import transformers

    return transformers.BertForMaskedLM(bert(
        options, hidden_size=options.hidden, num_hidden_layers=options.layers,
        num_attention_heads=4, intermediate_size=4 * options.hidden))


def trainer_job(turn, options, way):
    """`way`: checkpointing, budget and config (budget None: without pudica)."""
    import transformers

    steps = []  # what pudica says of each

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *unused, **also_unused):
            turn.begin()

        def on_step_end(self, *unused, **also_unused):
            turn.end()
            if way.get("config"):
                steps.append(callback.handle.stats()["last_step"])

    transformers.set_seed(options.seed)
    model = masked_model(options)
    trainer = transformers.Trainer(
        model=model, train_dataset=lines_of_text(options), data_collator=collate,
        callbacks=[Turns()],
        args=transformers.TrainingArguments(
            output_dir=tempfile.mkdtemp(), max_steps=options.steps, report_to=[], use_cpu=True,
            per_device_train_batch_size=options.batch, disable_tqdm=True, save_strategy="no",
            seed=options.seed, gradient_checkpointing=way.get("checkpointing", False)))
    trainer.remove_callback(transformers.PrinterCallback)
    if way.get("budget"):
        from pudica.transformers import install

        callback = install(trainer, way["budget"], config=way.get("config"), daemon=False)
    trainer.train()
    # The first step of all keeps its layers even with policy full, to try them.
    return {"digest": digest(model),
            "stats": summary(callback.handle.stats()) if way.get("budget") else None,
            "highest_after_first": max((step["peak_bytes"] for step in steps[1:]), default=0)}


def lightning_job(turn, options, way):
    """`way` as trainer_job's."""
    import logging

    import lightning.pytorch as pl
    import torch

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    steps = []

    class Turns(pl.Callback):
        def on_train_batch_start(self, *unused, **also_unused):
            turn.begin()

        def on_train_batch_end(self, *unused, **also_unused):
            turn.end()
            if way.get("config"):
                steps.append(callbacks[0].handle.stats()["last_step"])

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = masked_model(options)
            if way.get("checkpointing"):
                self.net.gradient_checkpointing_enable()

        def training_step(self, batch, index):
            return self.net(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    pl.seed_everything(options.seed, verbose=False)
    module = Module()
    module.net.train()
    callbacks = [Turns()]
    if way.get("budget"):
        from pudica.lightning import PudicaCallback

        callbacks.insert(
            0, PudicaCallback(way["budget"], config=way.get("config"), daemon=False))
    batches = torch.utils.data.DataLoader(
        lines_of_text(options), options.batch, shuffle=True, collate_fn=collate)
    pl.Trainer(
        max_steps=options.steps, max_epochs=-1, accelerator="cpu", callbacks=callbacks,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tempfile.mkdtemp(),
    ).fit(module, batches)
    return {"digest": digest(module.net),
            "stats": summary(callbacks[0].handle.stats()) if way.get("budget") else None,
            "highest_after_first": max((step["peak_bytes"] for step in steps[1:]), default=0)}


def idle_job(turn, options, way):
    import torch
    import transformers

    torch.manual_seed(options.seed)
    model = transformers.BertForMaskedLM(bert(
        options, hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
        intermediate_size=1024)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    handle = None
    if way.get("budget"):
        import pudica

        handle = pudica.attach(model, way["budget"], daemon=False)
    for _ in range(options.idle_steps):
        words = torch.randint(1, 256, (8, 128))
        turn.begin()
        model(input_ids=words, attention_mask=torch.ones_like(words), labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        turn.end()
    return {"digest": digest(model), "stats": handle and summary(handle.stats())}


def train(job, options, ways, steps):
    """{way: Lane}, of which all ended well."""
    lanes = interleave(job, options, ways, steps)
    for name, lane in lanes.items():
        if lane.failure:
            raise SystemExit(f"bench/python_trainer.py: {name}: {lane.failure}")
    return lanes


def compare(lanes, base):
    reference = lanes[base].seconds[WARMUP:]
    found = {}
    for name, lane in lanes.items():
        own = lane.seconds[WARMUP:]
        of_plain = over(own, reference)
        total = of_plain.pop("total")
        found[name] = {"step_ms": quartiles([1e3 * value for value in own]),
                       "of_plain": of_plain, "total_of_plain": total,
                       "stats": lane.report["stats"]}
    digests = {lane.report["digest"] for lane in lanes.values()}
    return {"turns": len(reference), "ways": found, "parameters_equal": len(digests) == 1}


def budget_benchmark(job, options, folder):
    configs = {}
    for policy in ("none", "full"):
        configs[policy] = str(folder / f"{policy}.json")
        pathlib.Path(configs[policy]).write_text(json.dumps({"policy": policy}))
    lanes = train(
        job, options,
        {p: {"budget": AMPLE, "config": config} for p, config in configs.items()}, options.steps)
    keep_all, floor = (lanes[p].report["highest_after_first"] for p in ("none", "full"))
    budget = (floor + keep_all) // 2
    ways = {"plain": {}, "gradient_checkpointing": {"checkpointing": True},
            "pudica": {"budget": budget}}
    found = compare(train(job, options, ways, options.steps), "plain")
    return {"floor_bytes": floor, "keep_all_bytes": keep_all, "budget_bytes": budget, **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="of a Trainer")
    parser.add_argument("--idle-steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["trainer", "lightning", "idle"])
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if min(options.steps, options.idle_steps) < WARMUP + 10:
        parser.error(f"expected at least {WARMUP + 10} steps")
    os.environ.update(measuring_environment())  # of the workers, which begin as new programs
    result = {
        "schema": "pudica.bench/1", "benchmark": "python_trainer",
        **origin(["bench/python_trainer.py", *sys.argv[1:]], options.seed, "transformers",
                 "accelerate", "lightning"),
        "clock": "CPU time of each process, one thread",
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, job in (("trainer", trainer_job), ("lightning", lightning_job)):
            if options.only in (None, name):
                result[name] = budget_benchmark(job, options, pathlib.Path(folder))
        if options.only in (None, "idle"):
            ways = {"plain": {}, "pudica": {"budget": AMPLE}}
            result["idle"] = compare(train(idle_job, options, ways, options.idle_steps), "plain")
    text = json.dumps(result, indent=1)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
