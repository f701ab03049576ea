"""Preemption by Slurm: by QOS, and by the tier of the partition."""

from __future__ import annotations

from tests.parity.case import Case, Do, Job, Pause, Step, Until, story
from tests.parity.world import EXEMPT_S

SUBJECT = "Preemption"
NODE = "-w {n1} --gres=gpu:8"


def tiers(name: str, *steps: Step, **fields: object) -> Case:
    """Return a case on the cluster with PreemptType=preempt/partition_prio."""
    return story(name, *steps, world="tiers", **({"within_s": 40} | fields))


def exempt(name: str, *steps: Step, **fields: object) -> Case:
    """Return a case on the cluster that has PreemptExemptTime, too."""
    return story(name, *steps, world="exempt", **({"within_s": 40} | fields))


CASES = (
    story(
        "preempt-qos",
        Job(label="low", options=f"{NODE} --qos=low", script="sleep 20"),
        Until("low"),
        Pause(2),
        Job(label="high", options=f"{NODE} --qos=high", script="sleep 2"),
        accounting=True,
        within_s=20,
    ),
    story(
        "preempt-qos-array",
        Job(label="low", options="-w {n1} -a 0-1 --gres=gpu:4 --qos=low", script="sleep 20"),
        Until("low"),
        Pause(2),
        Job(label="high", options=f"{NODE} --qos=high", script="sleep 2"),
        accounting=True,
        within_s=20,
    ),
    story(
        "preempt-qos-part",
        Job(label="low", options="-w {n1} --gres=gpu:4 --qos=low", script="sleep 20"),
        Job(label="plain", options="-w {n1} --gres=gpu:4", script="sleep 20"),
        Until("low"),
        Until("plain"),
        Pause(2),
        Job(label="high", options="-w {n1} --gres=gpu:4 --qos=high", script="sleep 2"),
        accounting=True,
        within_s=20,
    ),
    story(
        "preempt-qos-not-needed",
        Job(label="low", options=f"{NODE} --qos=low", script="sleep 8"),
        Until("low"),
        Job(label="high", options="--gres=gpu:8 --qos=high", script="sleep 2"),
        accounting=True,
        within_s=20,
    ),
    story(
        "preempt-qos-equal",
        Job(label="first", options=f"{NODE} --qos=high", script="sleep 8"),
        Until("first"),
        Job(label="second", options=f"{NODE} --qos=high", script="sleep 2"),
        accounting=True,
        within_s=30,
    ),
    story(
        "preempt-qos-cpu-job",
        Job(label="low", options="-w {n1} -p {cpu} --gres=gpu:8 --qos=low", script="sleep 20"),
        Until("low"),
        Pause(2),
        Job(label="high", options=f"{NODE} --qos=high", script="sleep 2"),
        accounting=True,
        within_s=20,
    ),
    story(
        "preempt-qos-no-requeue",
        Job(label="low", options=f"{NODE} --qos=low --no-requeue", script="sleep 20"),
        Until("low"),
        Pause(2),
        Job(label="high", options=f"{NODE} --qos=high", script="sleep 2"),
        accounting=True,
        within_s=20,
    ),
    story(
        "preempt-qos-raised",
        Job(label="low", options=f"{NODE} --qos=low", script="sleep 20"),
        Until("low"),
        Pause(2),
        Job(label="plain", options=NODE, script="sleep 2"),
        Pause(2),
        Do("scontrol update JobId={plain} QOS=high", label="change"),
        accounting=True,
        within_s=20,
    ),
    tiers(
        "preempt-tier",
        Job(label="low", options=f"{NODE} -p {{low}}", script="sleep 20"),
        Until("low"),
        Pause(2),
        Job(label="job", options=NODE, script="sleep 2"),
        within_s=20,
    ),
    tiers(
        "preempt-tier-cancel",
        Job(label="low", options=f"{NODE} -p {{cancel}}", script="sleep 20"),
        Until("low"),
        Pause(2),
        Job(label="job", options=NODE, script="sleep 2"),
        within_s=20,
    ),
    tiers(
        "preempt-tier-off",
        Job(label="low", options=f"{NODE} -p {{never}}", script="sleep 8"),
        Until("low"),
        Pause(2),
        Job(label="job", options=NODE, script="sleep 2"),
    ),
    tiers(
        "preempt-tier-grace",
        Job(label="low", options=f"{NODE} -p {{grace}}", script="sleep 30"),
        Until("low"),
        Pause(2),
        Job(label="job", options=NODE, script="sleep 2"),
    ),
    tiers(
        "preempt-tier-unmanaged",
        Job(label="low", options=f"{NODE} -p {{cpu}}", script="sleep 20"),
        Until("low"),
        Pause(2),
        Job(label="job", options=NODE, script="sleep 2"),
        within_s=20,
    ),
    tiers(
        "preempt-tier-of-two-partitions",
        Job(label="first", options=f"{NODE} -p {{low}}", script="sleep 20"),
        Until("first"),
        Pause(2),
        Job(label="job", options=f"{NODE} -p {{low}},{{gpu}}", script="sleep 2"),
        within_s=20,
    ),
    tiers(
        "preempt-tier-gang",
        *(Job(label=f"low{at}", options=f"-w {{n{at}}} --gres=gpu:8 -p {{low}}", script="sleep 20") for at in (1, 2)),
        Job(label="never", options="-w {n3} --gres=gpu:8 -p {never}", script="sleep 12"),
        Until("low1"),
        Until("low2"),
        Until("never"),
        Pause(2),
        Job(label="job", options="-N2 --gres=gpu:8", script="sleep 2"),
        within_s=20,
    ),
    tiers(
        "preempt-tier-gang-without-room",
        Job(label="low", options="-w {n1} --gres=gpu:8 -p {low}", script="sleep 12"),
        *(
            Job(label=f"never{at}", options=f"-w {{n{at}}} --gres=gpu:8 -p {{never}}", script="sleep 12")
            for at in (2, 3)
        ),
        Until("low"),
        Until("never2"),
        Until("never3"),
        Pause(2),
        Job(label="job", options="-N2 --gres=gpu:8", script="sleep 2"),
        within_s=30,
    ),
    tiers(
        "preempt-tier-elsewhere",
        Job(label="low", options=f"{NODE} -p {{low}}", script="sleep 8"),
        Until("low"),
        Job(label="job", options="--gres=gpu:8", script="sleep 2"),
        within_s=20,
    ),
    tiers(
        "preempt-tier-order",
        Job(label="busy", options=NODE, script="sleep 6"),
        Until("busy"),
        Job(label="low", options=f"{NODE} -p {{low}}", script="sleep 2"),
        Job(label="job", options=NODE, script="sleep 2"),
    ),
    story(
        "preempt-qos-exempt",
        Job(label="kept", options=f"{NODE} --qos=kept", script="sleep 50"),
        Until("kept"),
        Pause(2),
        Job(label="high", options=f"{NODE} --qos=high", script="sleep 2"),
        accounting=True,
        within_s=40,
    ),
    story(
        "preempt-qos-exempt-and-not",
        Job(label="kept", options="-w {n1} --gres=gpu:4 --qos=kept", script="sleep 20"),
        Job(label="low", options="-w {n1} --gres=gpu:4 --qos=low", script="sleep 20"),
        Until("kept"),
        Until("low"),
        Pause(2),
        Job(label="high", options="-w {n1} --gres=gpu:4 --qos=high", script="sleep 2"),
        accounting=True,
        within_s=20,
    ),
    exempt(
        "preempt-exempt",
        Job(label="low", options=f"{NODE} -p {{low}}", script="sleep 50"),
        Until("low"),
        Pause(2),
        Job(label="job", options=NODE, script="sleep 2"),
    ),
    exempt(
        "preempt-exempt-no-more",
        Job(label="low", options=f"{NODE} -p {{low}}", script="sleep 50"),
        Until("low"),
        Pause(EXEMPT_S + 2),
        Job(label="job", options=NODE, script="sleep 2"),
        within_s=20,
    ),
    exempt(
        "preempt-exempt-ends-before",
        Job(label="low", options=f"{NODE} -p {{low}}", script="sleep 10"),
        Until("low"),
        Job(label="job", options=NODE, script="sleep 2"),
    ),
    exempt(
        "preempt-exempt-grace",
        Job(label="low", options=f"{NODE} -p {{grace}}", script="sleep 60"),
        Until("low"),
        Pause(2),
        Job(label="job", options=NODE, script="sleep 2"),
        within_s=50,
    ),
    exempt(
        "preempt-exempt-one-of-two",
        Job(label="never", options="-w {n3} --gres=gpu:8 -p {never}", script="sleep 40"),
        Job(label="old", options="-w {n1} --gres=gpu:8 -p {low}", script="sleep 50"),
        Until("old"),
        Pause(EXEMPT_S),
        Job(label="young", options="-w {n2} --gres=gpu:8 -p {low}", script="sleep 20"),
        Until("young"),
        Pause(2),
        Job(label="job", options="--gres=gpu:8", script="sleep 2"),
        within_s=30,
    ),
)
