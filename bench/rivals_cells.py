"""The cells of a part of rivals.py: a trace or a model, a budget and a seed each."""

import random


def run(kind, names, options, say, measure):
    """What `measure(name, budget, seed)` found of every cell, by name (as `kind`), budget and seed.
    The order in which they are measured is drawn with the first seed: none of them has a time of
    day of its own."""
    cells = [(name, budget, seed) for name in names for budget in options.budgets
             for seed in options.seeds]
    random.Random(options.seeds[0]).shuffle(cells)
    found = []
    for number, (name, budget, seed) in enumerate(cells, 1):
        say(f"{number} of {len(cells)}: {name}, budget {budget}, seed {seed}")
        found.append({kind: name, "budget": budget, "seed": seed, **measure(name, budget, seed)})
    return sorted(found, key=lambda cell: (names.index(cell[kind]), cell["budget"], cell["seed"]))
