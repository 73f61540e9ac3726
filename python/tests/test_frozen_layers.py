"""Models of which only the upper layers are trained."""

from __future__ import annotations

import small
import torch

import pudica


def test_models_whose_first_layers_are_frozen_are_learned() -> None:
    model = small.make()
    for module in (model.embedding, *model.blocks[:2]):
        module.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        small.train(model, 10, optimizer)
        assert handle.stats()["learning_steps"] < 8
        answer = handle.estimate((4, 128))
        assert answer["floor_peak_bytes"] < answer["keep_all_peak_bytes"]
