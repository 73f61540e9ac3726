"""The job of a cell of cuda_card.py that trains by Hugging Face's Trainer, as people do: examples
of unlike lengths, padded under a mask to the longest of their batch, bfloat16 by TrainingArguments,
its own optimizer, clipping and logging. pudica is put in by `install`, as its users do."""

import random
import tempfile
import time

from cuda_models import batches_of, build, peak


def examples_of(cell, model):
    """The examples of every step in order, of words drawn from the cell's seed."""
    import torch

    made = torch.Generator().manual_seed(cell["seed"])
    draw = random.Random(cell["seed"])
    classes = model.config.num_labels
    return [{"words": torch.randint(2, model.config.vocab_size, (length,), generator=made),
             "label": draw.randrange(classes)}
            for batch in batches_of(cell) for length, *_ in batch]


def collate_for(cell):
    classified = cell["model"].startswith("bert")

    def collate(examples):
        import torch

        longest = max(len(one["words"]) for one in examples)
        longest = -(-longest // cell["multiple"]) * cell["multiple"]
        words = torch.zeros(len(examples), longest, dtype=torch.long)
        mask = torch.zeros_like(words)
        for row, one in enumerate(examples):
            words[row, : len(one["words"])] = one["words"]
            mask[row, : len(one["words"])] = 1
        labels = words.masked_fill(mask == 0, -100)
        if classified:
            labels = torch.tensor([one["label"] for one in examples])
        return {"input_ids": words, "attention_mask": mask, "labels": labels}

    return collate


def turns_of(turn, options):
    """A callback that makes so many steps one turn."""
    import torch
    import transformers

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **unused):
            if state.global_step % options.steps_a_turn == 0:
                turn.begin()
                self.active, self.reserved = [], []
                self.began = time.perf_counter()
            torch.cuda.reset_peak_memory_stats()

        def on_step_end(self, args, state, control, **unused):
            self.active.append(peak("active"))
            self.reserved.append(peak("reserved"))
            if state.global_step % options.steps_a_turn == 0:
                torch.cuda.synchronize()
                turn.end(seconds=time.perf_counter() - self.began, active=self.active,
                         reserved=self.reserved)

    return Turns()


def train(turn, options, way, prepare):
    """`prepare(model)`: before the Trainer has it. The model, and pudica's handle or None."""
    import transformers

    cell = way["cell"]
    model, _ = build(cell["model"], options.seed)
    prepare(model)
    trainer = transformers.Trainer(
        model=model, train_dataset=examples_of(cell, model), data_collator=collate_for(cell),
        callbacks=[turns_of(turn, options)],
        args=transformers.TrainingArguments(
            output_dir=tempfile.mkdtemp(), max_steps=cell["steps"], report_to=[],
            save_strategy="no", seed=options.seed, bf16=bool(cell.get("amp")),
            per_device_train_batch_size=cell["batch"], train_sampling_strategy="sequential",
            disable_tqdm=True, remove_unused_columns=False, logging_steps=10))
    trainer.remove_callback(transformers.PrinterCallback)
    callback = None
    if way["kind"] == "policy":
        from pudica.transformers import install

        callback = install(trainer, way["budget"], policy=way["policy"], daemon=False)
    trainer.train()
    return model, callback and callback.handle

