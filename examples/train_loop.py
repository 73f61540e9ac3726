"""A plain PyTorch loop under a byte budget: a Transformer, byte by byte, on a novel.

    python examples/train_loop.py --budget 100MiB [--device cuda]
"""

import argparse
import pathlib
import random

import torch
from torch import nn

import pudica

TEXT = pathlib.Path(__file__).parents[1] / "data" / "pride_and_prejudice.txt"


class Reader(nn.Module):
    def __init__(self, longest: int, width: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(256, width), nn.Embedding(longest, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 6, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(text.size(1), device=text.device)
        x = self.words(text) + self.places.weight[: text.size(1)]
        return self.head(self.blocks(x, mask=mask, is_causal=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="100MiB", help="bytes, a fraction, or auto")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--longest", type=int, default=512)
    options = parser.parse_args()
    torch.manual_seed(1)
    novel = [line[: options.longest] for line in TEXT.read_bytes().splitlines()]
    lines = [torch.tensor(list(line)) for line in novel if len(line) > 1]
    choose = random.Random(1)
    model = Reader(options.longest).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with pudica.attach(model, budget=options.budget) as handle:
        for step in range(options.steps):
            text = nn.utils.rnn.pad_sequence(choose.sample(lines, 4), True).to(options.device)
            scores, next_bytes = model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()
            loss = nn.functional.cross_entropy(scores, next_bytes, ignore_index=0)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 9:
                last = handle.stats()["last_step"]
                print(f"step {step + 1}: loss {loss.item():.3f}, {last['shape']}: "
                      f"{last['peak_bytes'] / 2**20:.1f} MiB, {last['reason']}")


if __name__ == "__main__":
    main()
