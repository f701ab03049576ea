"""Python packages that Headway's services on a mini-cluster need, beside those of the mini-cluster itself."""

from __future__ import annotations

import importlib.util

from slurm.errors import PrerequisiteError

_CONTROLLER = ("prometheus_client", "pydantic", "pydantic_settings")
_AGENT = ("msgpack", "msgspec", "pynvml", "pydantic", "pydantic_settings")


def require_packages(*, agents: bool) -> None:
    """Raise PrerequisiteError, with the command that installs them, when packages of the controller or the agents are missing."""
    extras = {"controller": _CONTROLLER} | ({"agent": _AGENT} if agents else {})
    missing = [name for names in extras.values() for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise PrerequisiteError(
            f"--headway: Python packages are missing: {', '.join(dict.fromkeys(missing))}; "
            f"pip install 'headway-scheduler[{','.join(extras)}]' installs them"
        )
