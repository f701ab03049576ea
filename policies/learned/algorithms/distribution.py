"""Distributions over actions, a row for each observation of a batch, made from a network's logits.

    Categorical(logits)                      one action of n
    Categorical(logits, masks)               one of those that are possible
    MultiCategorical(logits (B, D, n))       D actions at once, each one of n, drawn independently

Algorithms know only `Distribution`, so each learns with each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

IMPOSSIBLE = -1e9
"""Logit of actions that are not possible. Not -inf, of which entropy and gradients would be NaN."""


class Distribution(Protocol):
    """B distributions. Invariant: an action that is not possible is never drawn, and has no part in entropy or gradients."""

    @property
    def probs(self) -> Tensor:
        """Probabilities, shaped like the logits."""

    @property
    def has_choice(self) -> Tensor:
        """Where more than one action is possible (B, bool)."""

    def sample(self, rng: torch.Generator) -> Tensor:
        """Draw an action for each row: (B), or (B, D) where an action has D parts."""

    def mode(self) -> Tensor:
        """Return the likeliest action of each row, shaped as `sample` draws it."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-probability of these actions (B)."""

    def entropy(self) -> Tensor:
        """Return the entropy in nats (B)."""


DistributionOf: TypeAlias = Callable[[Tensor, Tensor | None], Distribution]
"""Makes a distribution from logits and masks (None: all actions are possible)."""


class Categorical:
    """One action of n: logits (B, n), masks (B, n) with True where an action is possible."""

    def __init__(self, logits: Tensor, masks: Tensor | None = None) -> None:
        self.log_probs = masked_log_softmax(logits, masks)
        """Log-probabilities of all actions (B, n)."""
        self._masks = masks

    @property
    def probs(self) -> Tensor:
        """Probabilities (B, n)."""
        return self.log_probs.exp()

    @property
    def has_choice(self) -> Tensor:
        """See Distribution."""
        if self._masks is None:
            return torch.full(self.log_probs.shape[:1], self.log_probs.shape[1] > 1)
        return self._masks.sum(1) > 1

    def sample(self, rng: torch.Generator) -> Tensor:
        """Draw actions (B)."""
        return torch.multinomial(self.probs, 1, generator=rng).squeeze(1)

    def mode(self) -> Tensor:
        """Return the likeliest actions (B)."""
        return self.log_probs.argmax(1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-probability of actions (B)."""
        return self.log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)

    def entropy(self) -> Tensor:
        """Return the entropy (B)."""
        return -(self.probs * self.log_probs).sum(1)


class MultiCategorical:
    """D independent actions at once, such as one for each GPU: logits and masks (B, D, n)."""

    def __init__(self, logits: Tensor, masks: Tensor | None = None) -> None:
        """Raises ValueError for logits of another rank."""
        if logits.dim() != 3:
            raise ValueError(f"logits of shape {tuple(logits.shape)}; give (batch, parts of an action, choices)")
        self._shape = logits.shape
        self._each = Categorical(logits.flatten(0, 1), None if masks is None else masks.flatten(0, 1))

    @property
    def probs(self) -> Tensor:
        """Probabilities (B, D, n)."""
        return self._each.probs.view(self._shape)

    @property
    def has_choice(self) -> Tensor:
        """See Distribution."""
        return self._rows(self._each.has_choice).any(1)

    def sample(self, rng: torch.Generator) -> Tensor:
        """Draw actions (B, D)."""
        return self._rows(self._each.sample(rng))

    def mode(self) -> Tensor:
        """Return the likeliest actions (B, D)."""
        return self._rows(self._each.mode())

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-probability of actions (B, D), that is the sum over their parts (B)."""
        return self._rows(self._each.log_prob(actions.flatten())).sum(1)

    def entropy(self) -> Tensor:
        """Return the entropy (B)."""
        return self._rows(self._each.entropy()).sum(1)

    def _rows(self, flat: Tensor) -> Tensor:
        return flat.view(self._shape[:2])


def masked_log_softmax(logits: Tensor, masks: Tensor | None) -> Tensor:
    """Return log-probabilities along axis 1; those of impossible actions are so low that they are never drawn."""
    return torch.log_softmax(logits if masks is None else logits.masked_fill(~masks, IMPOSSIBLE), 1)
