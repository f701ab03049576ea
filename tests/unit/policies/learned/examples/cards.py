"""A model card for tests."""

from __future__ import annotations

from policies.learned.weights.card import ModelCard


def card(system: str = "toy", encoder: str = "toy/1", seed: int = 7) -> ModelCard:
    return ModelCard(
        system=system,
        recipe={"rate": 0.01, "layers": "16", "rounds": 6},
        seed=seed,
        encoder=encoder,
        shapes=("4x8",),
        data="a beam",
        data_sha256="0" * 64,
        versions={"headway": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
        results={"reward": 17.5},
    )
