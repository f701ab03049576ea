"""The effect of SIGUSR1 on a job's processes, from their lines in /proc."""

import signal
import subprocess
import sys

import pytest

from nodeagent.identity.procfs import ProcFiles, masks, name
from nodeagent.telemetry.signal_disposition import usr1_effect
from nodeagent.wire.report import Usr1Report
from tests.unit.nodeagent.identity.trees import plant, process

USR1 = 1 << (signal.SIGUSR1 - 1)
OTHERS = 0x7FFFFFFF & ~USR1
STEPD = 40


def seen(root, steps, **processes):
    """Return the effect on processes p50, p51, ..., given by their differences from one that slurmstepd has started."""
    plant(root, process(STEPD, name="slurmstepd", caught=0, blocked=0))
    for word, kind in processes.items():
        plant(root, process(int(word[1:]), **{"parent": STEPD, **kind}))
    return usr1_effect(ProcFiles(root), steps)


@pytest.mark.parametrize(
    ("kind", "caught", "fatal"),
    [
        ({}, 0, 1),
        ({"caught": USR1}, 1, 0),
        ({"ignored": USR1}, 0, 0),
        ({"blocked": USR1}, 0, 0),
        ({"caught": OTHERS, "ignored": OTHERS, "blocked": OTHERS}, 0, 1),
        ({"name": "slurmstepd"}, 0, 0),
        ({"name": "a (b) c) 1 2", "caught": USR1}, 1, 0),
    ],
)
def test_a_process_that_slurm_started_heeds_it_or_dies_of_it(tmp_path, kind, caught, fatal):
    assert seen(tmp_path, {"0": [50]}, p50=kind) == Usr1Report(caught, fatal)


def test_what_these_have_started_does_not_end_with_it(tmp_path):
    """Processes below a launcher do not receive it; in the batch script all do, but its shell continues when a child ends."""
    child = {"parent": 50}
    assert seen(tmp_path, {"0": [50, 51]}, p50={"ignored": USR1}, p51={**child, "caught": USR1}) == Usr1Report(0, 0)
    assert seen(tmp_path, {"batch": [50, 51]}, p50={"ignored": USR1}, p51={**child, "caught": USR1}) == Usr1Report(1, 0)
    assert seen(tmp_path, {"batch": [50, 51]}, p50={"caught": USR1}, p51=child) == Usr1Report(1, 0)


def test_all_steps_count_but_the_one_that_holds_the_job(tmp_path):
    found = seen(tmp_path, {"batch": [50], "0": [51, 99], "extern": [52]}, p50={"caught": USR1}, p51={}, p52={})
    assert found == Usr1Report(1, 1)


def test_very_many_are_not_looked_at(tmp_path):
    assert usr1_effect(ProcFiles(tmp_path), {"0": range(2000), "1": range(2000)}) is None


def test_the_kernel_writes_the_masks_where_they_are_looked_for():
    program = "import signal, sys; signal.signal(10, print); signal.signal(12, signal.SIG_IGN); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        stat = ProcFiles().stat(child.pid)
        child.communicate()
    _, ignored, caught = masks(stat)
    usr2 = 1 << (signal.SIGUSR2 - 1)
    assert (caught & USR1, caught & usr2, ignored & USR1, ignored & usr2) == (USR1, 0, 0, usr2)
    assert name(stat).startswith("python")
