"""A small model of our own and a loop over batches of varying length."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden=32, dropout=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.attention = nn.MultiheadAttention(hidden, 2, dropout=dropout, batch_first=True)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.dropout(self.down(torch.nn.functional.gelu(self.up(x))))


class Model(nn.Module):
    def __init__(self, layers=4, hidden=32, vocab=64):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, vocab)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make(seed=0, **kwargs):
    torch.manual_seed(seed)
    return Model(**kwargs).train()


def lengths(steps, seed=1, least=16, most=128):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(least, most, (steps,), generator=generator).tolist()


def batch(step, length, size=4, vocab=64):
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randint(0, vocab, (size, length), generator=generator)


def train(model, steps=10, optimizer=None, seed=1, each=None):
    """One optimizer step a batch; `each(step)` after it. The optimizer, to go on with."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, length in enumerate(lengths(steps, seed)):
        torch.manual_seed(100 + step)
        ids = batch(step, length)
        out = model(ids)
        loss = nn.functional.cross_entropy(out.flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if each:
            each(step)
    return optimizer


def same(left, right):
    pairs = zip(left.parameters(), right.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
