"""Profiles with pairs that the authors measured: `python -m simulator.papers.contention_rl.measured_pairs CSV PROFILES`.

CSV is `shared_thp_ratio.csv` of their code: a row for each measured job (model, GPUs, nodes), a column for each job beside it, and
the ratio of its throughput there. PROFILES is the file to write, for `--profiles`: the paper's profiles, with these pairs.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from simulator.errors import SimulatorError, SlowdownError
from simulator.slowdown.neighbours import pair_table
from simulator.slowdown.profiles.files import save_profiles
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles


def measured(path: Path) -> ModelProfiles:
    """Return the paper's profiles with the pairs of that file. Raises SlowdownError."""
    try:
        with path.open(encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)  # an open quote would hide the rows behind it
            _, *others = next(lines, [""])
            rows = [
                pair_table.PairRow(target, other, float(ratio))
                for target, *ratios in lines
                for other, ratio in zip(others, ratios, strict=True)
            ]
    except OSError as error:
        raise SlowdownError(f"cannot be read ({error.strerror})", mend="check the path", path=path) from error
    except ValueError as error:
        raise SlowdownError(f"is no table of ratios ({error})", mend="give shared_thp_ratio.csv", path=path) from error
    if not rows:
        raise SlowdownError("has no pair", mend="give shared_thp_ratio.csv", path=path)
    return replace(paper_profiles("contention-rl"), pairs=pair_table.fit(rows)[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; the exit status is 2 if it cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.contention_rl.measured_pairs",
        description="Write profiles with the pairs that the authors of contention RL measured.",
    )
    parser.add_argument("csv", type=Path, metavar="CSV", help="shared_thp_ratio.csv of the authors' code")
    parser.add_argument("profiles", type=Path, metavar="PROFILES", help="the file to write, for --profiles")
    given = parser.parse_args(arguments)
    try:
        save_profiles(measured(given.csv), given.profiles)
    except SimulatorError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"{parser.prog}: {given.profiles}: cannot be written ({error.strerror}); give another path\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
