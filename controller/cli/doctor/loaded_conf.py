"""Findings of `headway doctor` about lines of slurm.conf that the running slurmctld has not loaded. Pure functions."""

from __future__ import annotations

import re
import time
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
    pairs = {key: _compared(conf, facts, key) for key in KEYS}
    differ = [key for key, (written, running) in pairs.items() if written != running]
    for key in differ:
        restart = key in installed_files.EVENT_KEYS
        written, running = pairs[key]
        what = f"{path} has {_shown(key, written)}, but slurmctld runs with {_shown(key, running)}"
        mend = "restart slurmctld, which reads this key only when it starts" if restart else "scontrol reconfigure"
        yield Finding("slurm-conf", Level.WARNING, what, mend)
    if differ:
        return
    if _changed_since_start(conf, facts, host) and any(pairs[key][0] for key in installed_files.EVENT_KEYS):
        what = (
            f"slurmctld lists what {path} says about Headway; the file may have changed since slurmctld started, which reads "
            f"{' and '.join(installed_files.EVENT_KEYS)} only then"
        )
        yield Finding("slurm-conf", Level.OK, what)
    else:
        yield Finding("slurm-conf", Level.OK, f"slurmctld has loaded what {path} says about Headway")


def _changed_since_start(conf: SlurmConf, facts: SlurmFacts, host: Host) -> bool:
    """Return whether the configuration may have changed since slurmctld started; True where a time is not known."""
    started_s = slurmctld_started_s(facts)
    changed = [host.changed_s(path) for path in conf.texts]
    return started_s is None or any(changed_s is None or changed_s > started_s for changed_s in changed)


def slurmctld_started_s(facts: SlurmFacts) -> float | None:
    """Return when slurmctld started, seconds since the Unix epoch; None when it is not known."""
    try:
        return time.mktime(time.strptime(facts.settings.get("BOOT_TIME", ""), "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


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


def _compared(conf: SlurmConf, facts: SlurmFacts, key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the values of a key in the file and those that slurmctld shows: programs, or the items of a list."""
    if key not in installed_files.EVENT_KEYS and key != "TaskProlog":
        return _items(conf.value(key)), _items(facts.settings.get(key, ""))
    written = [setting.value for setting in conf.settings if setting.key.lower() == key.lower()]
    shown = {int(found[1] or 0): value for name, value in facts.settings.items() if (found := _numbered(name, key))}
    # Slurm 24.11 runs the programs of all lines and shows them with numbers, earlier releases run that of the last line.
    several = any(name.startswith(f"{key}[") for name in facts.settings)
    return _programs(written if several else written[-1:]), _programs([shown[number] for number in sorted(shown)])


def _numbered(name: str, key: str) -> re.Match[str] | None:
    return re.fullmatch(rf"{key}(?:\[([0-9]{{1,6}})\])?", name)


def _programs(values: list[str]) -> tuple[str, ...]:
    return tuple(value for value in values if value not in _NOT_SET)


def _items(value: str) -> tuple[str, ...]:
    return () if value in _NOT_SET else tuple(item.removeprefix("job_submit/") for item in list_items(value))


def _shown(key: str, values: tuple[str, ...]) -> str:
    text = ",".join(values)
    return f"{key}={text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}" if values else f"no {key}"
