"""The options of Headway in `headway-minicluster up`, and the specification of a cluster with Headway on it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from policies.api import load_policy, parse_policy
from policies.documents import DocumentError, parse_json, read_text
from policies.errors import PolicyError
from slurm.errors import SpecError
from slurm.minicluster.host.files import ClusterFiles
from slurm.minicluster.spec import ClusterSpec
from slurm.testbed.layout import Layout
from slurm.testbed.programs import InstallationError

_FILE = "choice.json"
_LONGEST_SOCKET = 107
_LONGEST_NAME = "status.sock"


@dataclass(frozen=True, slots=True)
class Choice:
    """Policy and agents of one cluster. The choice is kept in the cluster's folder, for later restarts."""

    policy: str
    """NAME or NAME:key=value, as `headway-policy serve` takes it."""
    agents: bool = False
    """True for an agent on each node."""


def layout_in(directory: Path) -> Layout:
    """Return the files of Headway in the folder of a cluster."""
    return Layout(ClusterFiles(directory).headway)


def with_headway(spec: ClusterSpec, choice: Choice) -> ClusterSpec:
    """Return the specification with Headway's plugin and hooks in Slurm. Raises SpecError when Headway cannot work with it."""
    layout = layout_in(spec.home)
    if spec.job_submit_lua is not None:
        raise SpecError(
            f"--job-submit-lua {spec.job_submit_lua}: Headway has its own job_submit.lua; leave out this option or --headway"
        )
    if len(os.fsencode(layout.runtime_dir / _LONGEST_NAME)) > _LONGEST_SOCKET:
        raise SpecError(f"--dir {spec.home}: the path is too long for Headway's sockets in it; choose a shorter one")
    try:
        load_policy(*parse_policy(choice.policy))
    except PolicyError as error:
        raise SpecError(f"--headway {choice.policy}: {error}") from error
    return layout.with_hooks(spec, str(layout.folder.relative_to(spec.home)))


def write_choice(directory: Path, choice: Choice) -> None:
    """Record what was chosen for the cluster in that folder."""
    path = layout_in(directory).folder / _FILE
    path.write_text(json.dumps(asdict(choice)) + "\n")
    path.chmod(0o644)


def read_choice(directory: Path) -> Choice | None:
    """Return what was chosen for the cluster in that folder; None when it was booted without Headway. Raises InstallationError."""
    path = layout_in(directory).folder / _FILE
    try:
        values = parse_json(read_text(path))
        return Choice(policy=str(values["policy"]), agents=bool(values["agents"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, DocumentError, KeyError, TypeError) as error:
        raise InstallationError(
            f"{path}: not as `headway-minicluster up` writes it ({error}); take the cluster down and boot it again"
        ) from error
