"""A chain of states: action 1 leads to the next one, action 0 ends the episode with nothing; only the last step has a reward.

After Schaul et al., "Prioritized experience replay", 2016, section 3.1. The best action is always 1, so Q(s, 1) =
gamma^(steps left).
"""

from __future__ import annotations

from typing import Any

import numpy as np

LENGTH = 8
GAMMA = 0.9
Array = np.ndarray[Any, Any]


def transitions(repeat_failures: int = 1) -> dict[str, Array]:
    """Return every transition, as rows of `NStepReturns`; those of action 0 so many times."""
    eye = np.eye(LENGTH, dtype=np.float32)
    right = [(state, 1, float(state == LENGTH - 1), 0.0 if state == LENGTH - 1 else GAMMA) for state in range(LENGTH)]
    wrong = [(state, 0, 0.0, 0.0) for state in range(LENGTH)] * repeat_failures
    rows = right + wrong
    states = np.array([row[0] for row in rows])
    return {
        "seen": eye[states],
        "masks": np.ones((len(rows), 2), dtype=np.bool_),
        "actions": np.array([row[1] for row in rows]),
        "returns": np.array([row[2] for row in rows], dtype=np.float32),
        "gammas": np.array([row[3] for row in rows], dtype=np.float32),
        "next_seen": eye[np.minimum(states + 1, LENGTH - 1)],
        "next_masks": np.ones((len(rows), 2), dtype=np.bool_),
        "shown": np.zeros(len(rows), dtype=np.bool_),
    }


def best_q() -> Array:
    """Return the optimal Q (LENGTH, 2)."""
    return np.stack([np.zeros(LENGTH), GAMMA ** np.arange(LENGTH - 1, -1, -1)], axis=1)
