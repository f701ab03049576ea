"""Advantages of batches (steps x environments).

An episode can end in two ways. *Terminated*: nothing follows, so the value of the next state is 0. *Truncated*: it was cut off, and
the value of its last state replaces the rest. At the end of the batch an episode continues, and the value of the state that it has
reached replaces the rest. `next_values[t, e]` is in all cases the value of the state that step t led to, before environment e
began anew. An episode that is marked as both has terminated.

`gamma` is one number, or one for each step: 1 while time stands still and a power of it where a step takes longer.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Flags: TypeAlias = npt.NDArray[np.bool_]


def values_after(values: FloatArray, last: FloatArray, truncated: Flags, final: FloatArray) -> Floats:
    """Return the values of the states that the steps led to.

    `values[t, e]` is that of the state before step t, `last[e]` of the state after the last one. `final` has those of the states
    in which episodes were cut off, in the order in which `truncated` has them row by row, as `Rollout.final_observations` has.
    """
    following = np.concatenate([values[1:], last[None]]).astype(np.float64)
    following[truncated] = final
    return following


def gae(
    rewards: FloatArray,
    values: FloatArray,
    next_values: FloatArray,
    terminated: Flags,
    truncated: Flags,
    *,
    gamma: float | FloatArray,
    lam: float,
) -> tuple[Floats, Floats]:
    """Return generalized advantage estimates, and the returns to learn values from: advantages + values.

    A_t = delta_t + gamma lambda A_{t+1} within an episode, delta_t = r_t + gamma V(s_{t+1}) - V(s_t) (Schulman et al.,
    "High-dimensional continuous control using generalized advantage estimation", ICLR 2016, equations 11 and 16).
    """
    discount = np.broadcast_to(np.asarray(gamma, dtype=np.float64), rewards.shape)
    deltas = rewards + np.where(terminated, 0.0, discount * next_values) - values
    advantages = _accumulate(deltas, np.where(terminated | truncated, 0.0, discount * lam))
    return advantages, advantages + values


def discounts(elapsed: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray]:
    """Return the discount after steps that took so much time, and the weight of their rewards; `gamma` is the discount of one unit.

    A reward is spread evenly over its step, so its weight is the mean of the discount over that time, in units in which a reward of
    1 in every unit of time for ever has the value 1. In a step without duration the weight is the limit of that.
    """
    factors = np.power(gamma, elapsed)
    if gamma == 1:
        return factors, np.ones_like(elapsed)
    at_once = -np.log(gamma) if gamma > 0 else 1.0
    return factors, np.where(elapsed > 0, (1.0 - factors) / np.where(elapsed > 0, elapsed, 1.0), at_once)


def _accumulate(gains: Floats, factors: Floats) -> Floats:
    """Return x with x_t = gain_t + factor_t x_{t+1}, from the last step to the first."""
    sums = gains.copy()
    for step in range(len(sums) - 2, -1, -1):
        sums[step] += factors[step] * sums[step + 1]
    return sums
