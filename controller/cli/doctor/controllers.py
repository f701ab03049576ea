"""Controllers that run on this machine, found by their command lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunningController:
    """A process of headway-controller on this machine, with what its settings file says now."""

    pid: int
    config: Path
    runtime_dir: Path
    slurm_conf: Path | None


def running_controllers(proc: Path, uids: frozenset[int]) -> Iterator[RunningController]:
    """Yield the controllers among the processes below /proc, without those whose settings cannot be read.

    Only processes of `uids` count: every user can run a process with a controller's command line, and with any settings file.
    """
    from controller.base.config import load_settings
    from controller.base.errors import ConfigurationError

    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if not _belongs_to(entry, uids):
                continue
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            config = _config_of(words)
            settings = load_settings((entry / "cwd").readlink() / config) if config is not None else None
        except (OSError, ConfigurationError):  # it has ended, or belongs to another user
            continue
        if config is not None and settings is not None and settings.slurm_client != "embedded":
            yield RunningController(int(entry.name), config, settings.runtime_dir, settings.slurm_conf)


def _belongs_to(process: Path, uids: frozenset[int]) -> bool:
    """Return whether real and effective uid of a process are among these: the real one stays the user's with setuid programs."""
    lines = (process / "status").read_text(errors="replace").splitlines()
    owners = next((line.split()[1:3] for line in lines if line.startswith("Uid:")), [])
    return len(owners) == 2 and {int(owner) for owner in owners} <= uids


def _config_of(words: list[str]) -> Path | None:
    """Return the settings file in the command line of a controller; None when it is no controller."""
    at = next((at for at, word in enumerate(words[:3]) if Path(word).name == "headway-controller"), None)
    if at is None or words[at + 1 : at + 2] != ["run"]:
        return None
    rest = words[at + 2 :]
    for number, word in enumerate(rest):
        if word in {"--config", "-c"} and number + 1 < len(rest):
            return Path(rest[number + 1])
        if word.startswith("--config="):
            return Path(word.removeprefix("--config="))
        if word.startswith("-c") and len(word) > 2:
            return Path(word[2:])
    return Path("/etc/headway/controller.toml")
