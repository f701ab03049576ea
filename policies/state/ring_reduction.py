"""Seconds of a ring reduction, by GPUs, bytes and racks: the curves of RL-TAPS."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt


@dataclass(frozen=True, slots=True)
class RingTime:
    """Seconds of a ring reduction in one rack: square roots of the GPUs at two sizes, straight lines between and beyond.

    RL-TAPS (section 4.6.3) measured 100 and 500 MB on up to 16 P100, and shows the curves in figure 3; the coefficients are those
    of its authors' published simulator (28.29 and 139.77 ms). Another rack costs a fifth (equation 12).
    """

    small_s: float = 0.02829
    """Seconds of a reduction of 100 MB, before the factors for GPUs and racks."""
    large_s: float = 0.13977
    """At 500 MB."""
    per_rack: float = 0.2

    @staticmethod
    def parts(size: float) -> tuple[float, float]:
        """Return the weights of both curves for `size` bytes."""
        mb = size / 1e6
        if mb <= 100:
            return mb / 100, 0.0
        return (500 - mb) / 400, (mb - 100) / 400

    def seconds(self, gpus: int, size: float, racks: int) -> float:
        """Return the seconds of one reduction of `size` bytes over GPUs in `racks` racks."""
        small, large = self.parts(size)
        return (small * self.small_s + large * self.large_s) * sqrt(gpus) * (1 + (racks - 1) * self.per_rack)


RL_TAPS_RING = RingTime()
"""As published."""
