"""A small network that predicts numbers: two hidden layers with ReLU, trained by Adam on the mean square error, in numpy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.papers.marl.state.jobs import Floats

_BETA_1, _BETA_2, _TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True, eq=False)
class SpeedNetwork:
    """Rows of features (R, F) -> one number each (R). Invariant: layer i has weights `weights[i]` and biases `biases[i]`."""

    weights: list[Floats]
    biases: list[Floats]

    @staticmethod
    def drawn(sizes: Sequence[int], rng: np.random.Generator) -> SpeedNetwork:
        """Return a network with these sizes of layers, features first, and random weights."""
        pairs = list(pairwise(sizes))
        return SpeedNetwork(
            [rng.normal(0.0, np.sqrt(2.0 / one), (one, other)) for one, other in pairs],
            [np.zeros(other) for _, other in pairs],
        )

    def predict(self, rows: Floats) -> Floats:
        """Return the predictions (R)."""
        found: Floats = self._layers(rows)[-1][:, 0]
        return found

    def fit(
        self, rows: Floats, values: Floats, rng: np.random.Generator, *, steps: int, batch: int, rate: float
    ) -> None:
        """Make gradient steps on random batches; the learning rate falls linearly to zero."""
        parts = [*self.weights, *self.biases]
        means, squares = [np.zeros_like(part) for part in parts], [np.zeros_like(part) for part in parts]
        for step in range(steps):
            chosen = rng.integers(len(rows), size=batch)
            gradients = self._gradients(rows[chosen], values[chosen])
            now, corrected = rate * (1.0 - step / steps), (1.0 - _BETA_1 ** (step + 1), 1.0 - _BETA_2 ** (step + 1))
            for place, gradient in enumerate(gradients):
                means[place] += (1.0 - _BETA_1) * (gradient - means[place])
                squares[place] += (1.0 - _BETA_2) * (gradient**2 - squares[place])
                deviation = np.sqrt(squares[place] / corrected[1]) + _TINY
                parts[place] -= now * means[place] / corrected[0] / deviation

    def as_text(self) -> str:
        """Return the network as JSON, with four significant digits."""
        layers = zip(self.weights, self.biases, strict=True)
        found = [{"weights": _short(weights), "biases": _short(biases)} for weights, biases in layers]
        return json.dumps(found, separators=(",", ":")) + "\n"

    @staticmethod
    def of_text(text: str) -> SpeedNetwork:
        """Return the network of `as_text`."""
        layers = json.loads(text)
        return SpeedNetwork(
            [np.array(each["weights"]) for each in layers], [np.array(each["biases"]) for each in layers]
        )

    def _layers(self, rows: Floats) -> list[Floats]:
        found = [rows]
        for place, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            after = found[-1] @ weights + biases
            found.append(after if place + 1 == len(self.weights) else np.maximum(after, 0.0))
        return found

    def _gradients(self, rows: Floats, values: Floats) -> list[Floats]:
        """Return the gradients of the mean square error by the weights, then by the biases."""
        layers = self._layers(rows)
        error = (2.0 / len(rows)) * (layers[-1] - values[:, None])
        weights: list[Floats] = []
        biases: list[Floats] = []
        for place in range(len(self.weights) - 1, -1, -1):
            weights.insert(0, layers[place].T @ error)
            biases.insert(0, error.sum(0))
            error = (error @ self.weights[place].T) * (layers[place] > 0.0)
        return [*weights, *biases]


def _short(values: Floats) -> object:
    return [float(f"{value:.4g}") for value in values] if values.ndim == 1 else [_short(row) for row in values]
