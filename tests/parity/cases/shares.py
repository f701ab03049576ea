"""Fair share: accounts and users that have used less of their shares come first."""

from __future__ import annotations

from tests.parity.case import OTHER, Case, Job, Step, Until, story

SUBJECT = "Fair share"
NODE = "-w {n1} --gres=gpu:8"
_COUNTED_S = 170
"""Time until usage counts, seconds: Slurm computes shares anew every minute there, and Headway reads them every minute."""


def used(label: str, node: int, options: str) -> tuple[Step, Step]:
    """Return a job that uses a node for some time, and the wait for its end."""
    job = Job(label=label, options=f"-w {{n{node}}} --gres=gpu:8 -c32 {options}", script="sleep 20")
    return job, Until(label, "COMPLETED", 60.0)


def shared(name: str, past: tuple[Step, ...], *steps: Step) -> Case:
    """Return a case in which jobs wait for a node until the usage counts that others cause first."""
    busy = Job(label="busy", options=NODE, script=f"sleep {_COUNTED_S}")
    return story(name, busy, Until("busy"), *past, *steps, world="shares", accounting=True, within_s=_COUNTED_S + 40.0)


CASES = (
    shared(
        "share-used-account",
        used("past", 2, "-A even1"),
        Job(label="used", options=f"{NODE} -A even1", script="sleep 2"),
        Job(label="fresh", options=f"{NODE} -A even2", script="sleep 2"),
    ),
    shared(
        "share-many-shares",
        (used("past1", 2, "-A poor")[0], *used("past2", 3, "-A rich")),
        Job(label="poor", options=f"{NODE} -A poor", script="sleep 2"),
        Job(label="rich", options=f"{NODE} -A rich", script="sleep 2"),
    ),
    shared(
        "share-used-by-user",
        used("past", 2, "-A both"),
        Job(label="used", options=f"{NODE} -A both", script="sleep 2"),
        Job(label="fresh", options=f"{NODE} -A both", script="sleep 2", user=OTHER),
    ),
)
