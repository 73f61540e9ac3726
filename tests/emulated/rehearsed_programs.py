"""Training scripts that know nothing of pudica, for rehearsal_test.py."""

import ctypes
import json
import random
import signal
import sys

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, width=512, layers=6):
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
            for _ in range(layers))
        self.head = nn.Linear(width, 1000)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def lengths(steps=30):
    draw = random.Random(3)
    return [draw.randrange(2, 33) * 8 for _ in range(steps)]


def batch(length):
    return torch.zeros(16, length, dtype=torch.long, device="cuda")


def train(model, steps=30):
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(steps):
        model(batch(length)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def plain(steps=30):
    train(Net().cuda(), int(steps))


def alike():
    """Large batches of one size: little is left over."""
    model = Net(layers=3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.zeros(64, 512, dtype=torch.long, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def insisting():
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    train(Net(layers=3).cuda(), 6)


def several_batches(largest=0, length=0):
    """Batches of several sizes; once of one that was asked for."""
    model = Net(layers=4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for number, size in enumerate(lengths(12)):
        rows, columns = 4 + number % 3 * 6, size
        if number == 8 and int(largest):
            rows, columns = int(largest), int(length)
        words = torch.zeros(rows, columns, dtype=torch.long, device="cuda")
        model(words).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class Checkpointed(Net):
    """Every layer recomputed, as Transformers' models do it."""

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def checkpointed():
    train(Checkpointed().cuda())


def measured(name, *words):
    """Another program, the peaks of the whole of it and the FLOPs of its products."""
    steps = 0

    def stepped(*unused):
        nonlocal steps
        steps += 1

    register_optimizer_step_post_hook(stepped)
    try:
        globals()[name](*words)
    except torch.OutOfMemoryError:
        print(json.dumps({"died_in_step": steps + 1}))
        return
    stats = torch.cuda.memory_stats()
    flops = ctypes.CDLL(None).emulated_device_product_flops
    flops.restype = ctypes.c_double
    print(json.dumps({"flops": flops(), **{
        kind: stats[f"{kind}_bytes.all.peak"] for kind in ("allocated", "reserved")}}))


def learning():
    plain()
    from pudica import _automatic

    print(json.dumps(_automatic.handles[0].stats()))


def waiting():
    plain()
    print("waiting", flush=True)
    signal.pause()


def accumulating():
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for number, length in enumerate(lengths()):
        model(batch(length)).mean().backward()
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


def reading():
    model = Net(layers=3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(12):
        loss = model(batch(length)).mean()
        loss.backward()
        if loss.item() > 1e9:
            break
        optimizer.step()
        optimizer.zero_grad()


def evaluating_by_value():
    """More reads between two steps than a loop may have that nothing from the host goes into."""
    model = Net(width=64, layers=2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(3):
        model(batch(length)).mean().backward()
        optimizer.step()
    data = torch.zeros(8)
    for _ in range(12_000):
        data.cuda().sum().item()


def endless():
    """Its end hangs on a value, which never comes."""
    model = Net(width=64, layers=2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(batch(8)).mean().backward()
    optimizer.step()
    while torch.zeros(1, device="cuda").item() == 0:
        pass


def masking():
    """The number of elements follows from values."""
    model = Net(layers=3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(12):
        words = batch(length)
        loss = model(words)[words == 7].sum()
        loss.backward()
        optimizer.step()


def own_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return 2 * x

        @staticmethod
        def backward(context, grad):
            (x,) = context.saved_tensors
            return 2 * grad + 0 * x

    class Doubled(Net):
        def forward(self, words):
            return Double.apply(super().forward(words))

    model = Doubled(layers=3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for length in lengths(12):
        model(batch(length)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluating():
    """Forwards without gradients in between."""
    model = Net(layers=3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for number, length in enumerate(lengths(12)):
        model(batch(length)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 4 == 3:
            with torch.no_grad():
                model(batch(256))


def compiled_parts():
    model = Net(layers=3)
    for block in model.blocks:
        block.norm1 = torch.compile(block.norm1, backend="eager")
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(12):
        model(batch(length)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def compiled():
    model = Net(layers=2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model.head = torch.compile(model.head)
    for length in lengths(4):
        model(batch(length)).mean().backward()
        optimizer.step()


def many_optimizers():
    """One for each parameter, as those have that step in the backward."""
    model = Net(layers=3).cuda()
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]
    for length in lengths(12):
        model(batch(length)).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


class Tagger(nn.Module):
    """Nothing in it is a list of layers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, 128)
        self.memory = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 20)

    def forward(self, words):
        return self.head(self.memory(self.words(words))[0])


def without_layers():
    train(Tagger().cuda(), 8)


def sampling_first():
    """What the actor learns from is drawn before its first forward with gradients."""
    actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).cuda()
    optimizer = torch.optim.Adam(actor.parameters())
    for _ in range(5):
        states, drawn = torch.zeros(10, 4, device="cuda"), []
        with torch.no_grad():
            for state in states:
                policy = torch.distributions.Categorical(logits=actor(state))
                drawn.append(int(
                    policy.sample()))
        policy = torch.distributions.Categorical(logits=actor(states))
        policy.log_prob(torch.tensor(drawn, device="cuda")).mean().neg().backward()
        optimizer.step()
        optimizer.zero_grad()


def generating():
    """All tokens are zeros there, and zero ends a sequence."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=100, n_positions=64, n_embd=32, n_layer=3, n_head=2,
        bos_token_id=0, eos_token_id=0, pad_token_id=0)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for sample in (False, True):
        words = torch.zeros(4, 24, dtype=torch.long, device="cuda")
        model(words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        made = model.generate(words[:, :8], max_new_tokens=20, do_sample=sample)
        assert made.shape[1] == 8 + 20, made.shape


def broken():
    model = Net(layers=3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(batch(8)).mean().backward()
    optimizer.step()
    raise ValueError("a mistake\nof the script")


def catching():
    model = Net(layers=3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for size in (1 << 12, 16):
        try:
            model(torch.zeros(size, 64, dtype=torch.long, device="cuda")).mean().backward()
        except torch.OutOfMemoryError:
            optimizer.zero_grad()
            continue
        optimizer.step()


def on_cpu():
    model = Net(layers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.zeros(2, 8, dtype=torch.long)).mean().backward()
    optimizer.step()


def rank():
    import os

    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(Net(layers=3).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(8):
        model(batch(length)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.manual_seed(1)
    globals()[sys.argv[1]](*sys.argv[2:])
