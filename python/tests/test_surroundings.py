"""What stands around a forward, or changes between it and its backward: a layer that is run again,
or whose tensors are recovered, must not notice."""

import contextlib
import functools

import pytest
import small
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import pudica
from pudica._forced import plans_of

HIDDEN = 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.paths = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(2))
        self.path = 0
        self.names = ["first"]
        self.act = torch.tanh

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        y = self.paths[self.path](self.act(y))
        return x + (y if self.names == ["first"] else 2 * y.sigmoid())


class Gate(nn.Module):
    """Backwards of its operators want what was there before they wrote."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(HIDDEN, HIDDEN)
        self.gate = nn.Linear(HIDDEN, HIDDEN)
        self.cell = nn.GRUCell(HIDDEN, HIDDEN)

    def forward(self, x):
        y = self.up(x)
        y *= torch.sigmoid(self.gate(x))
        y = self.cell(y.flatten(0, 1)).view_as(x)
        y /= 1 + self.gate(x).exp()
        return x + y.tanh()


class Net(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.pow(2).mean()


def plain(model, x):
    return model(x)


def around(context):
    def forward(model, x):
        with context():
            return model(x)
    return forward


@contextlib.contextmanager
def set_and_reset(read, write, value):
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


class Rounding(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out.bfloat16().float() if func is torch.tanh else out


class Halving(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out.mul(0.5) if func is torch.ops.aten.tanh.default else out


def two_adapters(model, x):
    first = model(x)
    for block in model.blocks:
        block.path = 1
    second = model(x)
    for block in model.blocks:
        block.path = 0
    return first + second


def renamed(model, x):
    loss = model(x)
    for block in model.blocks:
        block.names = ["second" if block.names == ["first"] else "first"]
    return loss


def another_function(model, x):
    loss = model(x)
    for block in model.blocks:
        block.act = torch.sin if block.act is torch.tanh else torch.tanh
    return loss


def borrowed(model, x):
    lent = {name: p * 1.5 for name, p in model.named_parameters()}
    return torch.func.functional_call(model, lent, (x,))


def lossy():
    return torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor.bfloat16() if tensor.is_floating_point() else tensor,
        lambda tensor: tensor.float() if tensor.dtype == torch.bfloat16 else tensor)


CASES = {
    "math attention": around(functools.partial(
        torch.nn.attention.sdpa_kernel, torch.nn.attention.SDPBackend.MATH)),
    "matmul precision": around(functools.partial(
        set_and_reset, torch.get_float32_matmul_precision, torch.set_float32_matmul_precision,
        "medium")),
    "without mkldnn": around(functools.partial(torch.backends.mkldnn.flags, enabled=False)),
    "threads": around(functools.partial(
        set_and_reset, torch.get_num_threads, torch.set_num_threads, 2)),
    "function mode": around(Rounding),
    "dispatch mode": around(Halving),
    "hooks of the user's": around(lossy),
    "another adapter": two_adapters,
    "another name": renamed,
    "another function": another_function,
    "borrowed parameters": borrowed,
}
PLANNED = set(CASES) - {"dispatch mode", "hooks of the user's", "borrowed parameters"}


def train(model, forward, steps=8):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        torch.manual_seed(step)
        forward(model, torch.randn(2, 20 + 11 * (step * 7 % 8), HIDDEN)).backward()
        optimizer.step()
        optimizer.zero_grad()


def result(block, forward, policy=None, budget=1 << 40):
    torch.manual_seed(0)
    model = Net(block)
    if policy is None:
        train(model, forward)
        return model, {}
    with plans_of(policy) if policy else contextlib.nullcontext():
        handle = pudica.attach(model, budget, daemon=False)
    with handle:
        train(model, forward)
        return model, handle.stats()


@pytest.mark.parametrize("name", CASES)
def test_what_stands_around_a_forward_alone(name):
    expected, _ = result(Attention, CASES[name])
    for policy in ("full", "random:seed=3", "random:seed=4", ""):
        model, stats = result(Attention, CASES[name], policy)
        assert small.same(expected, model), policy
        assert stats["failures"] == 0
        if policy == "full":
            assert (stats["recomputed_layers"] > 0) == (name in PLANNED)


def test_what_stood_around_is_put_back():
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    for name in ("math attention", "matmul precision", "without mkldnn", "threads"):
        result(Attention, CASES[name], "full")
    assert torch.get_float32_matmul_precision() == precision
    assert torch.get_num_threads() == threads
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("policy", ["full", "random:seed=1", "random:seed=2", ""])
def test_operators_that_overwrite_what_their_backward_wants(policy):
    expected, _ = result(Gate, plain)
    for budget in (1 << 40, 600_000):
        model, stats = result(Gate, plain, policy, budget)
        assert small.same(expected, model)
        assert stats["failures"] == 0


def test_optimizers_that_step_in_the_backward_do_not_end_the_step():
    def train_in_backward(model):
        optimizers = {p: torch.optim.AdamW([p], lr=1e-3) for p in model.parameters()}

        def step(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(step)
        for number in range(8):
            torch.manual_seed(number)
            model(torch.randn(2, 20 + 11 * (number * 7 % 8), HIDDEN)).backward()

    torch.manual_seed(0)
    expected = Net(Gate)
    train_in_backward(expected)
    torch.manual_seed(0)
    model = Net(Gate)
    with plans_of("full"):
        handle = pudica.attach(model, 1 << 40, daemon=False)
    with handle:
        train_in_backward(model)
        stats = handle.stats()
    assert small.same(expected, model)
    assert stats["recomputed_layers"] > 4 * 5
