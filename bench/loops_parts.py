"""What the loops of loops.py are made of: the list of them, small models, batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 100
Loop = Callable[[Any, int], Iterator[None]]
LOOPS: dict[str, tuple[Callable[[], nn.Module], Loop]] = {}


def loop(make: Callable[[], nn.Module]) -> Callable[[Loop], Loop]:
    """Of models that `make` makes; the seed is set before."""

    def add(function: Loop) -> Loop:
        LOOPS[function.__name__] = (make, function)
        return function

    return add


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-3)


def seeded(steps: int) -> Iterator[int]:
    """Numbers of steps, with what is drawn in each drawn anew."""
    for k in range(steps):
        torch.manual_seed(k)
        random.seed(k)
        yield k


def stepped(model: nn.Module, steps: int, losses: Callable[[int], Any]) -> Iterator[None]:
    """A loop of one backward an optimizer's step."""
    optimizer = adam(model)
    for k in seeded(steps):
        optimizer.zero_grad()
        losses(k).backward()
        optimizer.step()
        yield


class Block(nn.Module):
    def __init__(self, size: int = 48) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.attention = nn.MultiheadAttention(size, 4, dropout=0.1, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Dropout(0.1),
                                   nn.Linear(4 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.inner(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, layers: int = 6, size: int = 48, make: Any = Block) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size)
        self.blocks = nn.ModuleList(make(size) for _ in range(layers))
        self.head = nn.Linear(size, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.document = Model(4), Model(6)

    def forward(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        return self.query(queries).mean(1) @ self.document(documents).mean(1).T


class Left(Model):
    """Every block is left out now and then."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            if not self.training or random.random() > 0.2:
                x = block(x)
        return self.head(x)


class Cell(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(size), nn.LSTM(size, size, batch_first=True)

    def forward(self, x: torch.Tensor, state: Any) -> Any:
        out, state = self.inner(self.norm(x), state)
        return x + out, state


class Recurrent(nn.Module):
    """Layers of an LSTM whose state the caller hands on."""

    def __init__(self, layers: int = 4, size: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size)
        self.layers = nn.ModuleList(Cell(size) for _ in range(layers))
        self.head = nn.Linear(size, VOCABULARY)

    def forward(self, ids: torch.Tensor, states: Any = None) -> Any:
        x, found = self.embedding(ids), []
        for k, layer in enumerate(self.layers):
            x, state = layer(x, None if states is None else states[k])
            found.append(state)
        return self.head(x), found


class Experts(nn.Module):
    """A block whose tokens go each to one of four."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(size), nn.Linear(size, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))
            for _ in range(4))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = self.norm(x).flatten(0, 1)
        weight, chosen = self.router(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for k, expert in enumerate(self.experts):
            where = (chosen == k).nonzero()[:, 0]
            out = out.index_add(0, where, expert(flat[where]) * weight[where, None])
        return x + out.view_as(x)


SEED = 0  # of the batches; loops.py sets it, in a process that trains one loop


def words(k: int, rows: int = 0, length: int = 0, longest: int = 96) -> torch.Tensor:
    """The k-th batch: of one to six rows and any length where they are not given."""
    k += 1_000_000 * SEED
    drawn = random.Random(f"batch {k}")
    rows, length = rows or drawn.randint(1, 6), length or drawn.randint(8, longest)
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(k))


def loss_of(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out.flatten(0, 1), ids.flatten())


# -- Hugging Face's ------------------------------------------------------------------------------


def bert() -> nn.Module:
    import transformers as hf

    config = hf.BertConfig(vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=6,
                           num_attention_heads=4, intermediate_size=160)  # fmt: skip
    return hf.BertForMaskedLM._from_config(config, attn_implementation="eager")


def gpt2() -> nn.Module:
    import transformers as hf

    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=VOCABULARY, n_embd=48, n_layer=6, n_head=4))


def t5() -> nn.Module:
    import transformers as hf

    return hf.T5ForConditionalGeneration(hf.T5Config(
        vocab_size=VOCABULARY, d_model=48, d_kv=12, d_ff=160, num_layers=4, num_heads=4,
        decoder_start_token_id=0))  # fmt: skip


def whisper() -> nn.Module:
    import transformers as hf

    return hf.WhisperForConditionalGeneration(hf.WhisperConfig(
        vocab_size=VOCABULARY, d_model=48, encoder_layers=3, decoder_layers=3, num_mel_bins=16,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=160,
        decoder_ffn_dim=160, max_source_positions=100, max_target_positions=96,
        encoder_layerdrop=0.1, decoder_layerdrop=0.1, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1))  # fmt: skip
