"""Blocks at random, as those see them who bring them into order."""

from random import Random

from helmsman.planner.strategies.optimal.order.pace import HOST, Pace


def random_pace(chance: Random, shortest: float = 0.0, most_lost: float = 0.95) -> Pace:
    """A block for which something comes, or nothing: parts of at least `shortest` seconds, which lose at most such a
    share of their speed beside the link; it begins and ends anywhere."""
    link, parts = chance.choice([0.0, chance.uniform(0.1, 3.0)]), [chance.uniform(shortest, 1.0) for _ in range(3)]
    parts = parts if link else [sum(parts), 0.0, 0.0]
    slow = (chance.choice([0.0, chance.uniform(0.0, most_lost)]), chance.uniform(0.5, 1.0))
    return Pace(sum(parts), link, *parts, *slow, 0, chance.choice([HOST, 0]), chance.choice([HOST, 0]))
