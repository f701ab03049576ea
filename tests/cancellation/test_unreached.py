"""Every await of controller and node agent is seen waiting in a scripted run, or stands in a list that grows only by hand."""

from __future__ import annotations

import pytest

from tests.cancellation.unreached import ROOT, seen_in_all_runs, unreached

_REFUSED = "waits only when the call is refused, and then inside gRPC"
_AT_ONCE = "the answer is there at once in these runs"
_REAL_SLURM = "asks a real Slurm; the runs have an emulated one"
_RARE = "a failure that no run has: an answer that comes late, a full queue, another process in the way"
_ENDS = "begins or ends a part, and waits in other parts only"
_OWN_ERROR = "repeats a step for each job alone after an error of Headway's own, which no run has"
EXCEPTIONS = {
    "controller/admin/access.py": (3, "calls of headway-web, and a group that may read"),
    "controller/admin/call_limits.py": (6, "runs in coroutines of gRPC, around the servicer that is watched"),
    "controller/admin/changes.py": (2, _AT_ONCE),
    "controller/admin/event_messages.py": (3, "events to come: the run's call may end before one"),
    "controller/admin/front.py": (5, _ENDS),
    "controller/admin/metrics/metered_client.py": (
        13,
        "hands calls on to the client; the run of the services changes little",
    ),
    "controller/admin/own_jobs.py": (3, "more preemptions than these runs have"),
    "controller/admin/profile_calls.py": (2, "names of users of measurements, of which these runs have none"),
    "controller/admin/profile_messages.py": (1, "names of users of measurements, of which these runs have none"),
    "controller/admin/refusal.py": (1, _REFUSED),
    "controller/admin/report/log_reports.py": (2, "a job that has asked for its report, of which these runs have none"),
    "controller/admin/report/sources.py": (4, "Slurm's accounting, which the emulated Slurm has not"),
    "controller/admin/report/usage.py": (1, _AT_ONCE),
    "controller/admin/serve.py": (2, _ENDS),
    "controller/admin/service.py": (24, _REFUSED),
    "controller/admin/viewer.py": (2, _AT_ONCE),
    "controller/agents/entry/addresses.py": (9, "addresses of agents are compared where MUNGE is used"),
    "controller/agents/entry/admission.py": (1, "MUNGE"),
    "controller/agents/profile_requests.py": (1, _RARE),
    "controller/agents/reports/storage.py": (5, _RARE),
    "controller/agents/server.py": (10, _RARE),
    "controller/agents/stream.py": (6, _RARE),
    "controller/agents/topology.py": (3, _RARE),
    "controller/base/apart.py": (1, _OWN_ERROR),
    "controller/base/clock.py": (14, "the virtual clock of tests"),
    "controller/base/turn.py": (2, _RARE),
    "controller/contention/measurement.py": (4, _RARE),
    "controller/contention/rehearsal.py": (1, "a threshold that is learned from the reports of days"),
    "controller/contention/reprofiling.py": (4, "neighbours that change within the windows of hours"),
    "controller/contention/service.py": (4, "a threshold that is learned from the reports of days"),
    "controller/cycle/cycle.py": (4, _AT_ONCE),
    "controller/cycle/decision/decider.py": (10, _RARE),
    "controller/cycle/settling.py": (1, _RARE),
    "controller/cycle/steps/applier.py": (2, _OWN_ERROR),
    "controller/cycle/steps/errands.py": (3, _RARE),
    "controller/cycle/steps/hand_over.py": (4, _RARE),
    "controller/cycle/steps/verbs.py": (2, _OWN_ERROR),
    "controller/daemon/assemble.py": (12, _ENDS),
    "controller/daemon/daemon.py": (4, _AT_ONCE),
    "controller/daemon/ending.py": (1, _ENDS),
    "controller/daemon/leadership.py": (6, "a second controller on another machine"),
    "controller/daemon/lessons.py": (1, "a pause, while a policy server that learns is away"),
    "controller/daemon/policy_swap.py": (1, _RARE),
    "controller/daemon/slurm_order.py": (3, _AT_ONCE),
    "controller/daemon/watchdog/run.py": (2, _ENDS),
    "controller/daemon/watchdog/watchdog.py": (16, _RARE),
    "controller/forecast/process.py": (1, "a process that needs seconds to begin"),
    "controller/forecast/service.py": (3, "a process that needs seconds to begin"),
    "controller/slurm/accounting.py": (2, _REAL_SLURM),
    "controller/slurm/pyslurm/client.py": (3, _RARE),
    "controller/slurm/scontrol/client.py": (
        9,
        "a failure that no run has, and associations, of which the emulated Slurm has none",
    ),
    "controller/slurm/select.py": (3, _REAL_SLURM),
    "controller/slurm/time_limit.py": (1, "a program that is ended because its call was cut"),
    "controller/slurm/updates/verbs.py": (7, _RARE),
    "controller/slurm/user_holds.py": (1, _RARE),
    "nodeagent/check.py": (12, "a command, which ends"),
    "nodeagent/daemon.py": (3, "waits for the first reading of the GPUs, or for an end that is late"),
    "nodeagent/run.py": (2, "`agent_run` does the same with other GPUs, and has no files of a GPU driver"),
    "nodeagent/telemetry/driver_minors.py": (2, "files of a GPU driver"),
    "nodeagent/telemetry/nvml.py": (2, "an end during the start of the GPU child"),
    "nodeagent/uplink/munge.py": (4, "MUNGE"),
    "nodeagent/uplink/stream.py": (10, "MUNGE, TLS, and a stream that the controller refuses"),
}
"""File: the most awaits there that no run reaches, and why. In real time, a few are sometimes reached and sometimes not.

To be changed by hand only: downwards when a script reaches more, and upwards with a reason.
"""


@pytest.mark.timeout(400)  # eight runs, six of them in real time
def test_awaits_that_no_run_reaches_are_those_of_the_list() -> None:
    found = unreached(seen_in_all_runs())
    too_many = {path: lines for path, lines in found.items() if len(lines) > EXCEPTIONS.get(path, (0, ""))[0]}
    assert not too_many, "no scripted run waits at these awaits: let one of them do so, or give a reason"
    assert all((ROOT / path).is_file() for path in EXCEPTIONS)


def test_an_await_that_no_run_reaches_is_found() -> None:
    assert unreached(())["controller/cycle/cycle.py"]
