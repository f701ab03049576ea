"""Place of the texts that real releases of Slurm have printed, which are no part of the repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VARIABLE = "HEADWAY_SLURM_TEXTS"
"""Environment variable that names the folder. It has one folder for each release."""
BESIDE = Path("../shared/data/slurm-text")
"""Place of that folder without the variable, from the checkout."""
_CHECKOUT = Path(__file__).parents[5]


def recorded_texts(environment: Mapping[str, str], checkout: Path = _CHECKOUT) -> Path | None:
    """Return the folder of recorded texts, as the variable names it, else beside the checkout; None if there is none."""
    if named := environment.get(VARIABLE):
        return Path(named)
    beside = checkout / BESIDE
    return beside if beside.is_dir() else None
