"""Switches, on a cluster with a tree of them: n1 and n2 are under one, n3 under another one. Segments are for blocks."""

from __future__ import annotations

from tests.parity.case import STEP, Case, Job, Step, Until, story

SUBJECT = "Switches"
NODE = "--gres=gpu:8"


def below(name: str, *steps: Step, **fields: object) -> Case:
    """Return a case on the cluster with switches."""
    return story(name, *steps, world="switches", **({"within_s": 30} | fields))


def busy(node: str, seconds: int) -> tuple[Step, Step]:
    """Return a job that occupies a node for so long."""
    label = f"busy{node}"
    return Job(label=label, options=f"-w {{n{node}}} {NODE}", script=f"sleep {seconds}"), Until(label)


CASES = (
    below("switch-one", Job(options=f"-N2 --switches=1 {NODE}", script=STEP), where=True),
    below("switch-none-asked", Job(options=f"-N2 {NODE}", script=STEP), where=True),
    below("switch-one-node", *busy("1", 8), Job(options=f"-N1 --switches=1 {NODE}")),
    below("switch-all-nodes", Job(options=f"-N3 {NODE}", script=STEP)),
    below("switch-two", Job(options=f"-N3 --switches=2 {NODE}", script=STEP), where=True),
    below("switch-one-is-waited-for", *busy("1", 12), Job(options=f"-N2 --switches=1 {NODE}"), where=True, within_s=40),
    below("switch-wait-ends", *busy("1", 40), Job(options=f"-N2 --switches=1@0:08 {NODE}"), where=True, within_s=30),
    below("switch-too-few", Job(options=f"-N3 --switches=1@0:06 {NODE}"), within_s=30),
    below(
        "switch-two-jobs",
        Job(label="pair", options=f"-N2 --switches=1 {NODE}", script="sleep 6"),
        Job(label="single", options=NODE, script="sleep 6"),
        where=True,
    ),
    below(
        "switch-others-start-meanwhile",
        *busy("1", 14),
        Job(label="pair", options=f"-N2 --switches=1 {NODE}"),
        Job(label="single", options=f"-w {{n3}} {NODE}", script="sleep 4"),
        within_s=40,
    ),
    below("switch-with-nodelist", Job(options=f"-N2 -w {{n2}},{{n3}} --switches=1@0:06 {NODE}"), where=True),
    below("switch-by-gpus", Job(options="--gpus=16 -N2 --switches=1", script=STEP), where=True),
    below("switch-malformed", Job(options=f"-N2 --switches=few {NODE}")),
    below("switch-array", Job(options=f"-a 0-1 -N2 --switches=1 {NODE}", script="sleep 3"), within_s=40),
)
