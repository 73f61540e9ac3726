"""Arguments are put together as they were when the layer began, whatever it did to them."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import torch
import transformers as hf

from pudica._arguments import take_apart, tensors_in

Pair = namedtuple("Pair", "left right")


def again(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
    """Taken apart; changed by `change`; put together."""
    template, tensors, _, _ = take_apart(args, kwargs)
    return template, tensors, template.rebuild(tensors)


class Store:
    def __init__(self) -> None:
        self.kept: torch.Tensor | None = None
        self.other: Any = None


def test_nested_structures() -> None:
    a, b = torch.ones(2), torch.zeros(3)
    _, tensors, (args, kwargs) = again((a, [b, None]), Pair(a, 1), key={"x": b, "y": "word"})
    assert [t.data_ptr() for t in tensors] == [t.data_ptr() for t in (a, b, a, b)]
    assert args[0][0] is a
    assert args[0][1][0] is b
    assert isinstance(args[1], Pair)
    assert args[1].right == 1
    assert kwargs == {"key": {"x": b, "y": "word"}}


def test_a_list_is_as_it_was_before_the_call_appended_to_it() -> None:
    grown = [torch.ones(1)]
    template, tensors, _ = again(grown)
    grown.append(torch.ones(2))
    (rebuilt,), _ = template.rebuild(tensors)
    assert len(rebuilt) == 1
    rebuilt.append(torch.ones(3))
    assert len(template.rebuild(tensors)[0][0]) == 1
    assert len(grown) == 2


def test_an_object_is_as_it_was_before_the_call_filled_it() -> None:
    store = Store()
    template, tensors, _ = again(store)
    store.kept = torch.ones(2)
    (rebuilt,), _ = template.rebuild(tensors)
    assert rebuilt.kept is None
    rebuilt.kept = torch.ones(3)
    assert template.rebuild(tensors)[0][0].kept is None
    assert store.kept.shape == (2,)


def test_an_object_that_is_passed_twice_is_one_object() -> None:
    store = Store()
    store.other = store
    _, _, (args, kwargs) = again(store, [store], name=store)
    assert args[0] is args[1][0] is kwargs["name"] is args[0].other
    assert args[0] is not store


def test_key_value_caches() -> None:
    config = hf.LlamaConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2)
    for cache in (
        hf.DynamicCache(),
        hf.DynamicCache(config=config),
        hf.EncoderDecoderCache(hf.DynamicCache(), hf.DynamicCache()),
    ):
        template, tensors, _ = again(past_key_values=cache)
        grown = getattr(cache, "self_attention_cache", cache)
        grown.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
        assert cache.get_seq_length() == 3
        rebuilt = template.rebuild(tensors)[1]["past_key_values"]
        assert rebuilt.get_seq_length() == 0
        second = getattr(rebuilt, "self_attention_cache", rebuilt)
        second.update(torch.ones(1, 2, 5, 4), torch.ones(1, 2, 5, 4), 0)
        assert cache.get_seq_length() == 3
        template, tensors, _ = again(past_key_values=cache)
        assert len(tensors) >= 2, "what the cache holds is an input"
        assert template.rebuild(tensors)[1]["past_key_values"].get_seq_length() == 3


def test_model_outputs_keep_their_order() -> None:
    from transformers.modeling_outputs import BaseModelOutput

    output = BaseModelOutput(last_hidden_state=torch.ones(2), hidden_states=(torch.ones(1),))
    _, _, (args, _) = again(output, OrderedDict(b=torch.ones(1), a=2))
    assert list(args[0].keys()) == ["last_hidden_state", "hidden_states"]
    assert args[0].last_hidden_state is output.last_hidden_state
    assert list(args[1]) == ["b", "a"]


def test_tensors_in_dataclasses() -> None:
    @dataclasses.dataclass
    class Output:
        x: torch.Tensor
        rest: Any = None

    a, b = torch.ones(1), torch.ones(2)
    assert [t.numel() for t in tensors_in((Output(a), Output(b, [a])))] == [1, 2, 1]
