"""Hugging Face's Trainer under a byte budget: a small GPT-2, byte by byte, on a novel.

    python examples/finetune_trainer.py --budget 200MiB [--device cuda]
"""

import argparse
import pathlib

import torch
import transformers

import pudica.transformers

TEXT = pathlib.Path(__file__).parents[1] / "data" / "pride_and_prejudice.txt"


def paragraphs(longest: int) -> list[torch.Tensor]:
    lines = TEXT.read_bytes().splitlines()
    return [torch.tensor(list(line[:longest])) for line in lines if line]


def collate(examples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    words = torch.nn.utils.rnn.pad_sequence(examples, batch_first=True)  # 0 is no byte of a text
    mask = words != 0
    return {"input_ids": words, "attention_mask": mask.long(),
            "labels": words.masked_fill(~mask, -100)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="200MiB", help="bytes, a fraction, or auto")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--output", default="build/finetune_trainer")
    options = parser.parse_args()
    transformers.set_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=options.longest, n_embd=128, n_layer=4, n_head=4,
        bos_token_id=0, eos_token_id=0))
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=options.output, max_steps=options.steps, per_device_train_batch_size=4,
            learning_rate=1e-3, logging_steps=5, save_steps=100, report_to=[],
            use_cpu=options.device == "cpu"),
        train_dataset=paragraphs(options.longest),
        data_collator=collate,
    )
    callback = pudica.transformers.install(trainer, budget=options.budget)
    trainer.train()
    stats = callback.handle.stats()
    print(f"{stats['steps']} steps, highest peak {stats['highest_peak_bytes'] / 2**20:.1f} MiB of "
          f"{stats['budget_bytes'] / 2**20:.1f}, {stats['overruns']} overruns, "
          f"{stats['recomputed_layers']} of {stats['layer_calls']} layer calls recomputed")


if __name__ == "__main__":
    main()
