"""Options, progress on standard error and files of results, for the commands of experiments."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

Name = Annotated[str, typer.Option(help="Name of the cluster; several clusters can be up at once.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def name_option(name: str) -> str:
    """Return the option that names the cluster in a command line, with a blank before it; empty for the default."""
    return "" if name == "headway" else f" --name {name}"


def policies_in(text: str) -> list[str]:
    """Split `a,b:key=value,c` into policies, and make each, so that a wrong name is found before a cluster boots.

    A comma begins a new policy unless another key=value of the last one follows. Raises SpecError.
    """
    from policies.api import load_policy, parse_policy
    from policies.errors import PolicyError
    from slurm.errors import SpecError
    from slurm.experiments.policy_names import require_different

    names: list[str] = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        if names and "=" in item.partition(":")[0] and ":" in names[-1]:
            names[-1] += f",{item}"
        else:
            names.append(item)
    if not names or len(set(names)) < len(names):
        raise SpecError(f"--policies {text}: give different names with commas between; `headway-policy list` shows all")
    require_different(names)
    for name in names:
        try:
            load_policy(*parse_policy(name))
        except PolicyError as error:
            raise SpecError(f"--policies: {error}") from error
    return names


def require_slurm() -> None:
    """Raise PrerequisiteError if no mini-cluster can be booted here."""
    from slurm.errors import PrerequisiteError
    from slurm.prerequisites import missing

    if reasons := missing():
        raise PrerequisiteError("; ".join(reasons))


def report(text: str) -> None:
    """Write a line of progress on standard error."""
    typer.echo(text, err=True)


def require_writable(*paths: Path | None) -> None:
    """Try to open files of results, before hours of work for them; None for no file. Raises ExperimentError.

    Their contents stay, and a file that was not there is not there afterwards.
    """
    for path in filter(None, paths):
        was_there = path.exists()
        if was_there and not (
            path.is_file() or path.is_dir()
        ):  # the reader of a pipe would take its first end for the last
            continue
        with _writing(path):
            path.open("a").close()
            if not was_there:
                path.resolve().unlink()


def write_json(path: Path, value: Any) -> None:
    """Write a file of results. Raises ExperimentError."""
    with _writing(path):
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    from slurm.experiments.errors import ExperimentError

    try:
        yield
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be written ({error.strerror}); give another file") from error
