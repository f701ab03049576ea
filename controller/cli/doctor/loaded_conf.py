"""Findings of `headway doctor` about lines of slurm.conf that the running slurmctld has not loaded. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from controller.base.errors import ConfigurationError
from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import SlurmConf, list_items, read_slurm_conf
from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.cli.doctor.host import Host
    from controller.slurm.client import SlurmFacts

KEYS = ("JobSubmitPlugins", *installed_files.EVENT_KEYS, "TaskProlog", "SchedulerParameters")
"""Keys that Headway needs, whose values Slurm shows as they are written."""
_NOT_SET = frozenset({"", "(null)"})
_LONGEST = 80


def loaded_findings(facts: SlurmFacts, host: Host) -> Iterator[Finding]:
    """Yield a finding for each key whose value in slurm.conf is not the running one; none where slurm.conf cannot be read."""
    path = facts.settings.get("SLURM_CONF", "")
    conf = _read(Path(path), host) if path else None
    if conf is None:
        return
    differ = [key for key in KEYS if _in_file(conf, key) != _running(facts, key)]
    for key in differ:
        restart = key in installed_files.EVENT_KEYS
        what = f"{path} has {_shown(key, _in_file(conf, key))}, but slurmctld runs with {_shown(key, _running(facts, key))}"
        mend = "restart slurmctld, which reads this key only when it starts" if restart else "scontrol reconfigure"
        yield Finding("slurm-conf", Level.WARNING, what, mend)
    if not differ:
        yield Finding("slurm-conf", Level.OK, f"slurmctld has loaded what {path} says about Headway")


def _read(path: Path, host: Host) -> SlurmConf | None:
    def text(wanted: Path) -> str:
        found = host.text(wanted)
        if found is None:
            raise FileNotFoundError(wanted)
        return found

    try:
        return read_slurm_conf(path, text)
    except ConfigurationError:
        return None


def _in_file(conf: SlurmConf, key: str) -> tuple[str, ...]:
    """Return the values of a key: the programs of each line, or the items of a list."""
    if key in installed_files.EVENT_KEYS or key == "TaskProlog":
        # Slurm 24.11 runs the programs of all lines, earlier releases that of the last one; `_running` shows which.
        values = [setting.value for setting in conf.settings if setting.key.lower() == key.lower()]
        return tuple(values[-1:])
    return _items(conf.value(key))


def _running(facts: SlurmFacts, key: str) -> tuple[str, ...]:
    if key in installed_files.EVENT_KEYS or key == "TaskProlog":
        numbered = [value for name, value in facts.settings.items() if name == key or name.startswith(f"{key}[")]
        return tuple(value for value in numbered if value not in _NOT_SET)[-1:]
    return _items(facts.settings.get(key, ""))


def _items(value: str) -> tuple[str, ...]:
    return () if value in _NOT_SET else tuple(item.removeprefix("job_submit/") for item in list_items(value))


def _shown(key: str, values: tuple[str, ...]) -> str:
    text = ",".join(values)
    return f"{key}={text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}" if values else f"no {key}"
