"""Parts on a bare machine: the README's installation, an upgrade under load, and the way back, with the documents' own commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.releases.container import CHECKOUT, Container
from tests.releases.documents import Step, blocks, script, steps

_SETUP_S = 240.0
_DOCUMENT_S = 900.0
_JOB_S = 180.0
_REGISTERED = "! scontrol --oneliner show node | grep -q SlurmdStartTime=None"
"""Command that succeeds when each slurmd has registered since the last start of slurmctld, which forgets when slurmd started."""
_RUNS_S = 5
"""Time for which jobs run before they are cancelled. 22.05 loses count of GPUs when jobs are cancelled within about a second of a
restart of slurmctld, also without Headway; this is not what the parts are about."""
_NEXT = "0.1.99"
"""Version to which is upgraded."""
_MAY_FAIL = re.compile(r"--check$|--undo( --apply)?$")
"""Commands whose exit status says that something is left to do, as the documents say of them."""


class PartError(Exception):
    """A part has failed: the text says which command, with what status and output."""


def prepare(container: Container) -> None:
    """Make a site with its own Slurm, which runs and knows nothing of Headway."""
    done = container.bash(f"bash {CHECKOUT}/tests/releases/site/setup.sh", timeout_s=_SETUP_S)
    if done.status != 0:
        raise PartError(f"the site's own Slurm does not run: {_end(done.output)}")


def install(container: Container, documents: Path) -> str:
    """Run the README's commands, then a job of a user."""
    commands = [command for block in blocks(_readme(documents), "Install on a cluster") for command in block]
    _follow(container, commands)
    state = _job(container, "gpu:2")
    if state != "COMPLETED":
        raise PartError(f"a job after the installation is {state}, not COMPLETED")
    _require(container, "/opt/headway/bin/headway why $(cat /tmp/job)", "")
    return f"{len(commands)} commands, one job"


def upgrade(container: Container, documents: Path) -> str:
    """Install a newer version while jobs run and wait; none is lost, released or started again."""
    _submit_load(container)
    before = _queue(container)
    if not {"RUNNING", "PENDING"} <= {state for _, state, _ in before}:
        raise PartError(f"no load: {before}")
    files = "pyproject.toml policies/serving/runtime/version.py"
    _require(container, f'cd {CHECKOUT} && sed -i -E \'/^(version|VERSION) = /s/".*"/"{_NEXT}"/\' {files}', "")
    commands = blocks(_operations(documents), "Upgrading")[0]
    _follow(container, commands)
    _require(container, "/opt/headway/bin/headway status", _NEXT)
    after = _queue(container)
    if after != before:
        raise PartError(f"jobs before: {before}; after: {after}")
    held = container.bash("squeue --noheader --states=PENDING --format=%r", timeout_s=60).output.split("\n")
    if any(reason and reason != "JobHeldUser" for reason in held):
        raise PartError(f"waiting jobs are not held any more: {held}")
    return f"{len(commands)} commands, {len(before)} jobs kept"


def undo(container: Container, documents: Path) -> str:
    """Take Headway out with the documents' commands; slurm.conf is what it was, and Slurm runs the jobs that waited."""
    if not _queue(container):
        _submit_load(container)
    commands = [command for block in blocks(_operations(documents), "Uninstalling")[:3] for command in block]
    _follow(container, commands)
    _require(container, "diff -u /root/slurm.before/slurm.conf /etc/slurm/slurm.conf", "")
    ours = "/opt/headway /etc/headway /etc/slurm/job_submit.lua /etc/slurm/headway/*.sh /etc/systemd/system/headway-*"
    _require(container, f"! ls -d {ours} 2>/dev/null", "")
    _wait_for(container, _REGISTERED, "the nodes register with the restarted slurmctld")
    _let_run(container)
    _require(container, "scancel --state=RUNNING --user=alice", "")
    _wait_for(
        container, "squeue --noheader --states=RUNNING --format=%A | grep -q .", "Slurm alone starts what had waited"
    )
    _let_run(container)
    _require(container, "scancel --user=alice", "")
    state = _job(container, "gpu:1")
    if state != "COMPLETED":
        raise PartError(f"a job after the undo is {state}")
    left = container.bash("ls /etc/slurm", timeout_s=60).output.split()
    return f"{len(commands)} commands; left in /etc/slurm: {' '.join(left)}"


def _follow(container: Container, commands: Sequence[str]) -> None:
    """Run commands in one shell. Raises PartError at the first that failed and may not."""
    done = container.bash(script(commands), timeout_s=_DOCUMENT_S, cwd=str(CHECKOUT))
    found = steps(commands, done.output)
    for step in found:
        if step.status != 0 and not may_fail(step):
            raise PartError(f"`{step.command}`: status {step.status}: {_end(step.output)}")
    if len(found) < len(commands):
        raise PartError(f"`{commands[len(found)]}` did not end: {_end(done.output)}")


def may_fail(step: Step) -> bool:
    """Return whether the documents say of this command that it may end so: something is left to do."""
    command = step.command.partition("  #")[0].strip()
    return bool(_MAY_FAIL.search(command)) and step.status == 1


def _require(container: Container, command: str, wanted: str) -> None:
    done = container.bash(command, timeout_s=_JOB_S)
    if done.status != 0 or wanted not in done.output:
        raise PartError(f"`{command}`: status {done.status}: {_end(done.output)}")


def _job(container: Container, gres: str) -> str:
    """Submit a job as a user, wait for it, and return its state."""
    words = f"sbatch --parsable --gres={gres} --output=/dev/null --wrap=true"
    text = f"""
        id=$(runuser -u alice -- {words}) || exit 1
        echo $id >/tmp/job
        for _ in $(seq {_JOB_S - 30:.0f}); do
            state=$(scontrol --oneliner show job $id | grep -o 'JobState=[A-Z_]*')
            case $state in *PENDING|*RUNNING|*COMPLETING) sleep 1 ;; *) break ;; esac
        done
        echo $state
        case $state in *COMPLETED) exit ;; esac
        scontrol show job $id | grep -E 'Reason=|ExitCode=|StartTime=|NodeList='
        squeue --noheader
        sinfo --noheader --Node --format='%N %T %E'
        tail -n 15 /var/log/slurm/slurmctld.log
    """
    done = container.bash(text, timeout_s=_JOB_S, cwd="/tmp")
    return done.output.strip().removeprefix("JobState=") if done.status == 0 else _end(done.output)


def _submit_load(container: Container) -> None:
    """Four jobs that fill the cluster, and four that wait."""
    text = """
        for _ in 1 2 3 4 5 6 7 8; do
            runuser -u alice -- sbatch --parsable --gres=gpu:2 --output=/dev/null --wrap='sleep 3600' || exit 1
        done
        for _ in $(seq 90); do
            [ "$(squeue --noheader --states=RUNNING | wc -l)" = 4 ] && exit 0
            sleep 1
        done
        squeue; exit 1
    """
    done = container.bash(text, timeout_s=_JOB_S, cwd="/tmp")
    if done.status != 0:
        raise PartError(f"the load does not run: {_end(done.output)}")


def _let_run(container: Container) -> None:
    """Wait while jobs run, so that a cancellation does not meet their start."""
    _require(container, f"sleep {_RUNS_S}", "")


def _queue(container: Container) -> list[tuple[str, str, str]]:
    """Return id, state and start of each job; the start of a waiting job is empty."""
    output = container.bash("squeue --noheader --sort=i --format='%A|%T|%S'", timeout_s=60).output
    rows = (line.split("|") for line in output.splitlines() if line.count("|") == 2)
    return [(job, state, start if state == "RUNNING" else "") for job, state, start in rows]


def _wait_for(container: Container, command: str, what: str) -> None:
    done = container.bash(f"for _ in $(seq 60); do {command} && exit 0; sleep 1; done; squeue; exit 1", timeout_s=120)
    if done.status != 0:
        raise PartError(f"{what}: not after 60 s: {_end(done.output)}")


def _readme(documents: Path) -> str:
    return (documents / "README.md").read_text()


def _operations(documents: Path) -> str:
    return (documents / "docs" / "operations.md").read_text()


def _end(output: str) -> str:
    return " | ".join(line for line in output.strip().splitlines()[-8:] if line.strip())


BY_NAME: dict[str, Callable[[Container, Path], str]] = {"install": install, "upgrade": upgrade, "undo": undo}
"""Each returns what it has shown, or raises PartError."""
