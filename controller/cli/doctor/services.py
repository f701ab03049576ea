"""Findings of `headway doctor` about services: the controller, its tasks, the policy server, the watchdog. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from controller.base.lease import is_stale
from controller.base.text import left_out_text
from controller.cli.doctor.seen import PolicySeen, Seen
from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import Host, UserFacts

WATCHDOG_TIMER = "headway-watchdog.timer"


def service_findings(
    settings: ControllerSettings, seen: Seen, host: Host, slurm_user: UserFacts | None
) -> Iterator[Finding]:
    """Yield the findings about the services; `slurm_user` is None where this machine does not know SlurmUser."""
    yield from _controller(settings, seen, slurm_user)
    yield from _tasks(seen.troubles)
    yield from _left_out(seen.left_out)
    yield from _policy(settings, seen.policy)
    yield from _watchdog(seen, host)


def _controller(settings: ControllerSettings, seen: Seen, slurm_user: UserFacts | None) -> Iterator[Finding]:
    if seen.standby:
        what = (
            f"the controller stands by, because the slurmctld of {seen.standby} is active: run `headway doctor` there"
        )
        yield Finding("controller", Level.OK, what)
        return
    if seen.lease is None or is_stale(seen.lease, seen.now_s):
        when = "there is none" if seen.lease is None else f"the last one is {seen.now_s - seen.lease.time_s:.0f} s old"
        yield Finding(
            "controller",
            Level.ERROR,
            f"the controller does not renew its lease ({when}): Slurm schedules jobs without Headway",
            "systemctl status headway-controller; journalctl -u headway-controller",
        )
        return
    yield Finding("controller", Level.OK, "the controller runs and renews its lease")
    if set(seen.lease.partitions) != set(settings.partitions):
        what = f"the controller manages {', '.join(seen.lease.partitions)}, its settings say {', '.join(settings.partitions)}"
        yield Finding("controller-settings", Level.WARNING, what, "systemctl reload headway-controller")
    if seen.slurm is None:
        return
    if slurm_user is None:
        yield Finding("controller-user", Level.SKIPPED, "this machine does not know SlurmUser")
    elif seen.lease.controller_uid in {0, slurm_user.uid}:
        yield Finding("controller-user", Level.OK, "the controller may change jobs: it runs as SlurmUser or root")
    else:
        what = f"the controller runs as uid {seen.lease.controller_uid}, and Slurm does not let that user change jobs"
        yield Finding("controller-user", Level.ERROR, what, f"run it as {slurm_user.name} (User= of its unit)")


def _tasks(troubles: tuple[str, ...]) -> Iterator[Finding]:
    for trouble in troubles:
        yield Finding("tasks", Level.WARNING, f"in the controller, {trouble}", "journalctl -u headway-controller")


def _left_out(errors_by_part: tuple[tuple[str, int], ...]) -> Iterator[Finding]:
    if text := left_out_text(errors_by_part):
        mend = (
            "journalctl -u headway-controller | grep left_out: the first event of each kind names the job or node and the error, "
            "which is one of Headway: report it; a restart of the controller ends the count"
        )
        yield Finding("left-out", Level.WARNING, f"since the start of the controller: {text}", mend)


def _policy(settings: ControllerSettings, policy: PolicySeen) -> Iterator[Finding]:
    instead = f"{settings.fallback_policy} decides in its place"
    if not policy.may_look:
        what = f"the policy server was not checked: this user may not open {settings.policy_address}"
        yield Finding(
            "policy", Level.SKIPPED, what, "run `headway doctor` as root; `headway policy show` shows the policy"
        )
    elif policy.spec is None:
        mend = "systemctl status headway-policy; see policy_address in controller.toml"
        yield Finding("policy", Level.WARNING, f"{policy.problem or settings.policy_address}; {instead}", mend)
    elif not policy.healthy:
        what = f"the policy server at {settings.policy_address} reports that it is not serving; {instead}"
        yield Finding("policy", Level.WARNING, what, "journalctl -u headway-policy")
    else:
        yield Finding("policy", Level.OK, f"policy {policy.spec.name} serves at {settings.policy_address}")


def _watchdog(seen: Seen, host: Host) -> Iterator[Finding]:
    if seen.slurm is None:
        return
    match host.unit_active(WATCHDOG_TIMER):
        case True:
            yield Finding("watchdog", Level.OK, f"{WATCHDOG_TIMER} is active")
        case False:
            what = f"{WATCHDOG_TIMER} is not active: if the controller ends, the jobs that it holds stay held"
            yield Finding("watchdog", Level.ERROR, what, f"systemctl enable --now {WATCHDOG_TIMER}")
        case None:
            what = "this machine has no systemd, so the watchdog could not be checked"
            mend = "run `headway-controller watchdog --every 30` beside the controller"
            yield Finding("watchdog", Level.SKIPPED, what, mend)
