"""Lightning under a byte budget: a small GPT-2, byte by byte, on a novel.

    python examples/finetune_lightning.py --budget 200MiB [--device cuda]
"""

import argparse
import pathlib

import lightning
import torch
import transformers
from lightning.pytorch.loggers import CSVLogger

from pudica.lightning import PudicaCallback

TEXT = pathlib.Path(__file__).parents[1] / "data" / "pride_and_prejudice.txt"


def collate(examples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    words = torch.nn.utils.rnn.pad_sequence(examples, batch_first=True)  # 0 is no byte of a text
    return {"input_ids": words, "labels": words.masked_fill(words == 0, -100)}


class Novel(lightning.LightningModule):
    def __init__(self, longest: int) -> None:
        super().__init__()
        self.net = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=256, n_positions=longest, n_embd=128, n_layer=4, n_head=4, bos_token_id=0,
            eos_token_id=0, use_cache=False))

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        loss: torch.Tensor = self.net(**batch).loss
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="200MiB", help="bytes, a fraction, or auto")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--output", default="build/finetune_lightning")
    options = parser.parse_args()
    lightning.seed_everything(1)
    lines = [torch.tensor(list(line[: options.longest]))
             for line in TEXT.read_bytes().splitlines() if line]
    batches = torch.utils.data.DataLoader(lines, 4, shuffle=True, collate_fn=collate)
    callback = PudicaCallback(budget=options.budget)
    lightning.Trainer(
        accelerator=options.device, devices=1, max_steps=options.steps, callbacks=[callback],
        logger=CSVLogger(options.output), log_every_n_steps=5).fit(Novel(options.longest), batches)
    print(callback.handle, callback.handle.stats()["last_step"])


if __name__ == "__main__":
    main()
