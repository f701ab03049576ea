"""Hyper-parameters of MARL."""

from __future__ import annotations

from dataclasses import dataclass

from policies.errors import TrainingError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters. The paper gives the numbers of layers, 128 hidden units, Adam with 1e-5, and gamma; others are ours."""

    shared: bool = False
    """True: all schedulers have the same weights; False: each has its own (the paper)."""
    inner_layers: int = 4
    """Convolutions on the inner graph."""
    inter_layers: int = 2
    """Convolutions on the inter graph."""
    width: int = 32
    """Width of a node's embedding in the inner graph; our choice."""
    encoded: int = 128
    """Width of the vectors that schedulers exchange; our choice."""
    hidden: int = 128
    """Hidden units of the actor and of the critic."""
    learning_rate: float = 1e-5
    """Adam's learning rate."""
    gamma: float = 0.9
    """Discount from one decision of a scheduler to its next one."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy; the paper has none."""
    batch: int = 256
    """Decisions of a gradient step; our choice."""
    max_grad_norm: float = 0.5
    """Norm at which gradients are clipped; our choice."""

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        for name in (
            *("inner_layers", "inter_layers", "width", "encoded", "hidden", "learning_rate", "batch", "max_grad_norm"),
        ):
            if not getattr(self, name) > 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give more than 0")
        if not 0 <= self.gamma <= 1:
            raise TrainingError(f"gamma is {self.gamma}; give a number from 0 to 1")
        if self.entropy_weight < 0:
            raise TrainingError(f"entropy_weight is {self.entropy_weight}; give 0 or more")
