"""Conclusions of `headway doctor`, in the order of repair: pure functions of settings, collected facts and the machine's
files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from controller.cli.doctor.agents import agent_findings
from controller.cli.doctor.audit import audit_findings
from controller.cli.doctor.folders import folder_findings
from controller.cli.doctor.journal import journal_findings, space_findings
from controller.cli.doctor.loaded_conf import loaded_findings
from controller.cli.doctor.machine import machine_findings
from controller.cli.doctor.seen import Seen
from controller.cli.doctor.services import service_findings
from controller.cli.doctor.slurm import slurm_findings
from policies.serving.runtime.finding import Finding

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import Host, UserFacts
    from controller.slurm.client import SlurmFacts


def findings(settings: ControllerSettings, seen: Seen, host: Host) -> list[Finding]:
    """Return all findings, in the order in which to repair them."""
    facts = seen.slurm.facts if seen.slurm else None
    slurm_user = _slurm_user(facts, host)
    return [
        *slurm_findings(settings, seen, host, slurm_user),
        *(loaded_findings(facts, host) if facts else ()),
        *folder_findings(settings, host, slurm_user, slurmctld_looks=seen.slurm is not None and not seen.standby),
        *audit_findings(settings, seen, host, slurm_user),
        *journal_findings(settings, host),
        *space_findings(settings, facts, host),
        *machine_findings(settings, seen, host, slurm_user),
        *service_findings(settings, seen, host, slurm_user),
        *(agent_findings(seen.agents, seen.now_s) if seen.agents and not seen.standby else ()),
    ]


def _slurm_user(facts: SlurmFacts | None, host: Host) -> UserFacts | None:
    """Return SlurmUser, which `scontrol show config` prints as "slurm(64030)"."""
    found = re.fullmatch(r"(.+)\((\d+)\)", facts.settings.get("SlurmUser", "")) if facts else None
    return host.user(found[1]) or host.user(int(found[2])) if found else None
