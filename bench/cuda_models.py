"""Models and batches for cuda_budgets.py: sizes of real ones, weights that nobody trained."""

import contextlib
import csv
import pathlib
import random

ROOT = pathlib.Path(__file__).resolve().parents[1]


def _encoder(**sizes):
    import transformers

    return transformers.BertForSequenceClassification, transformers.BertConfig(**sizes)


def _gpt2():
    import transformers

    return transformers.GPT2LMHeadModel, transformers.GPT2Config(
        n_embd=1024, n_layer=24, n_head=16, use_cache=False)


def _t5():
    import transformers

    return transformers.T5ForConditionalGeneration, transformers.T5Config(
        d_model=768, d_ff=3072, num_layers=12, num_heads=12, use_cache=False,
        decoder_start_token_id=0, pad_token_id=0)


def _llama(**sizes):
    import torch
    import transformers

    return transformers.LlamaForCausalLM, transformers.LlamaConfig(
        vocab_size=32000, use_cache=False, dtype=torch.bfloat16, **sizes)


SEVEN = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
         "num_attention_heads": 32}
ONE = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
       "num_attention_heads": 32, "num_key_value_heads": 4}
CONFIGS = {
    "bert-base": _encoder,
    "bert-large": lambda: _encoder(hidden_size=1024, num_hidden_layers=24,
                                   num_attention_heads=16, intermediate_size=4096),
    "gpt2-medium": _gpt2,
    "t5-base": _t5,
    "llama-1b": lambda: _llama(**ONE),
    "llama-7b": lambda: _llama(**SEVEN),
    "lora-1b": lambda: _llama(**ONE),
    "lora-7b": lambda: _llama(**SEVEN),
}


def add_adapters(model, rank=16):
    """LoRA on the projections of queries and values; all else is frozen."""
    import torch
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.linear = linear
            kind = {"device": linear.weight.device, "dtype": linear.weight.dtype}
            self.down = nn.Parameter(torch.zeros(rank, linear.in_features, **kind))
            self.up = nn.Parameter(torch.zeros(linear.out_features, rank, **kind))

        def forward(self, x):
            return self.linear(x) + (x @ self.down.t()) @ self.up.t()

    model.requires_grad_(False)
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.q_proj = Adapted(attention.q_proj)
        attention.v_proj = Adapted(attention.v_proj)


def peak(kind):
    """Bytes since the last reset, as torch's allocator counts them: "active" or "reserved"."""
    import torch

    return torch.cuda.memory_stats()[f"{kind}_bytes.all.peak"]


def build(name, seed=None):
    """(model on cuda in training mode, optimizer). Weights are drawn from the seed; without one
    they are what lies there."""
    import torch

    kind, config = CONFIGS[name]()
    if seed is not None:
        torch.manual_seed(seed)
    with torch.device("meta" if seed is None else "cuda"):
        model = kind(config)
    if config.dtype == torch.bfloat16:
        model = model.to(torch.bfloat16)
    if seed is None:
        model = model.to_empty(device="cuda")
    if name.startswith("lora"):
        add_adapters(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    large = name == "llama-7b"  # whose moments would not fit with it
    optimizer = torch.optim.SGD(trained, lr=1e-4) if large else torch.optim.AdamW(trained, lr=1e-4)
    return model.train(), optimizer


def loss_of(model, name, shape, seed=None):
    """Of a batch of zeros, or of words drawn from the seed."""
    import torch

    batch, length, *target = shape
    words = torch.zeros(batch, length, dtype=torch.long, device="cuda")
    if seed is not None:
        made = torch.Generator().manual_seed(seed)
        words = torch.randint(2, model.config.vocab_size, words.shape, generator=made).cuda()
    if name.startswith("bert"):
        return model(input_ids=words, labels=words[:, 0] % model.config.num_labels).loss
    if name == "t5-base":
        labels = torch.zeros(batch, target[0] if target else length, dtype=torch.long,
                             device="cuda")
        return model(input_ids=words, labels=labels).loss
    return model(input_ids=words, labels=words).loss


def without_dropout(model):
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def forward(model, name, shape, seed):
    """The loss of a step that begins here, BERT's under autocast; peaks are counted anew."""
    import torch

    torch.manual_seed(seed)
    torch.cuda.reset_peak_memory_stats()
    amp = name.startswith("bert")
    with torch.autocast("cuda", torch.bfloat16) if amp else contextlib.nullcontext():
        return loss_of(model, name, shape, seed=seed)


def lengths_of(data):
    """Of the examples, [source] or [source, target]."""
    with open(ROOT / "data" / data, encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    columns = ["src_len", "tgt_len"] if "src_len" in rows[0] else ["len"]
    return [[int(row[column]) for column in columns] for row in rows]


def batches_of(cell):
    """The lengths of each step's examples, [source] or [source, target] each."""
    draw = random.Random(cell["seed"])
    examples = lengths_of(cell["data"])
    scale = cell.get("scale", 1)
    return [[[max(8, scale * part) for part in example]
             for example in draw.choices(examples, k=cell["batch"])] for _ in range(cell["steps"])]


def shapes_of(cell):
    """(batch, longest source, longest target) of each step; `tokens`: as many examples as fit into
    so many tokens, of like lengths."""
    if "tokens" not in cell:
        shapes = [(len(batch), *(max(part) for part in zip(*batch))) for batch in batches_of(cell)]
        return shapes if cell["model"] == "t5-base" else [shape[:2] for shape in shapes]
    draw = random.Random(cell["seed"])
    examples = lengths_of(cell["data"])
    shapes = []
    for _ in range(cell["steps"]):
        pool = sorted(draw.choices(examples, k=64))
        longest = max(1, pool[draw.randrange(len(pool))][0])
        shapes.append((max(1, cell["tokens"] // longest), longest))
    return shapes
