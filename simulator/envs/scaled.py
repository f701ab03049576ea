"""Observations between 0 and 1, for learners that do not scale by themselves."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from simulator.errors import SettingError

Floats = npt.NDArray[np.float32]


class Scaled(gymnasium.ObservationWrapper[Floats, Any, Any]):
    """An environment whose observations are one array of numbers, each in [0, 1].

    A number with a maximum of at most 1 stays as it is. Others, which may be hours or counts of any size, become
    log(1 + x) / log(1 + maximum), so that small ones keep their differences. Negative ones, which mark what is absent, stay.
    Whole numbers with a maximum, such as colours of an image, are divided by it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Raises SettingError for an environment whose observations are no single array."""
        super().__init__(env)
        box = env.observation_space
        if not isinstance(box, gymnasium.spaces.Box):
            raise SettingError(f"the observations of {env} are {type(box).__name__}, not one array; scale their parts")
        self._high = box.high.astype(np.float32)
        self._linear = np.issubdtype(box.dtype, np.integer)
        self._least = np.minimum(box.low.astype(np.float32), 0.0)
        self.observation_space = gymnasium.spaces.Box(self._least, np.minimum(self._high, 1.0), dtype=np.float32)

    def observation(self, observation: Any) -> Floats:
        """Return the observation in the range of `observation_space`."""
        seen = np.asarray(observation, dtype=np.float32)
        high = np.maximum(self._high, 1.0)
        above = seen / high if self._linear else np.log1p(np.maximum(seen, 0.0)) / np.log1p(high)
        scaled = np.where((seen < 0) | (self._high <= 1.0), seen, above)
        return np.clip(scaled, self._least, np.minimum(self._high, 1.0)).astype(np.float32)
