"""Rows for a replay memory out of a rollout: what each step led to before its environment began anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.learned.algorithms.rollout import Array, Observations, Rollout


def transitions(rollout: Rollout) -> dict[str, Array]:
    """Return observations, actions, rewards, terminated, next_observations, masks and next_masks (where there are masks), and the
    extras, as arrays of their own: step after step, and in each step environment after environment.

    Several observation arrays become `observations/name`. Observations that follow a terminated step mean nothing. A step that was
    cut off is left out where the environments do not report which actions were possible after it.
    """
    keep = np.ones(rollout.rewards.shape, dtype=np.bool_)
    rows = {
        "actions": rollout.actions,
        "rewards": rollout.rewards,
        "terminated": rollout.terminated,
        **rollout.extras,
    }
    final, last = _by_name(rollout.final_observations), _by_name(rollout.last_observations)
    for name, array in _by_name(rollout.observations).items():
        end = f"/{name}" if name else ""
        rows[f"observations{end}"] = array
        rows[f"next_observations{end}"] = _following(array, last[name], rollout.truncated, final[name])
    if rollout.masks is not None and rollout.last_masks is not None:
        rows["masks"] = rollout.masks
        if rollout.final_masks is None:
            keep &= ~rollout.truncated | rollout.terminated
        rows["next_masks"] = _following(rollout.masks, rollout.last_masks, rollout.truncated, rollout.final_masks)
    return {name: array[keep] for name, array in rows.items()}


def _by_name(observations: Observations) -> dict[str, Array]:
    return observations if isinstance(observations, dict) else {"": observations}


def _following(array: Array, last: Array, truncated: Any, final: Array | None) -> Array:
    """Return what followed each step, before its environment began anew."""
    following = np.concatenate([array[1:], last[None]])
    if final is not None:
        following[truncated] = final
    return following
