"""The order of the queue: submission, nice values, QOS, and large jobs among small ones."""

from __future__ import annotations

from tests.parity.case import OTHER, ROOT, Do, Job, Pause, Until, story

SUBJECT = "Order of the queue"
NODE = "-w {n1} --gres=gpu:8"
BUSY = (Job(label="busy", options=NODE, script="sleep 6"), Until("busy"))

CASES = (
    story(
        "order-of-submission",
        *BUSY,
        *(Job(label=name, options=NODE, script="sleep 2") for name in ("first", "second", "third")),
        within_s=40,
    ),
    story(
        "order-of-users",
        *BUSY,
        Job(label="first", options=NODE, script="sleep 2"),
        Job(label="second", options=NODE, script="sleep 2", user=OTHER),
        within_s=40,
    ),
    story(
        "order-nice",
        *BUSY,
        Job(label="nice", options=f"{NODE} --nice=5000", script="sleep 2"),
        Job(label="plain", options=NODE, script="sleep 2"),
        within_s=40,
    ),
    story(
        "order-nice-changed",
        *BUSY,
        Job(label="nice", options=NODE, script="sleep 2"),
        Job(label="plain", options=NODE, script="sleep 2"),
        Pause(1),  # until Headway holds it
        Do("scontrol update JobId={nice} Nice=5000", label="change"),
        within_s=40,
    ),
    story(
        "order-qos",
        *BUSY,
        Job(label="plain", options=NODE, script="sleep 2"),
        Job(label="high", options=f"{NODE} --qos=high", script="sleep 2"),
        accounting=True,
        within_s=40,
    ),
    story(
        "order-qos-changed",
        *BUSY,
        Job(label="plain", options=NODE, script="sleep 2"),
        Job(label="raised", options=NODE, script="sleep 2"),
        Do("scontrol update JobId={raised} QOS=high", label="change"),
        accounting=True,
        within_s=40,
    ),
    story(
        "order-priority-by-root",
        *BUSY,
        Job(label="plain", options=NODE, script="sleep 2"),
        Job(label="raised", options=NODE, script="sleep 2"),
        Do("scontrol update JobId={raised} Priority=4000000", ROOT, "change"),
        within_s=40,
    ),
    story(
        "order-priority-by-user",
        *BUSY,
        Job(label="job", options=NODE),
        Do("scontrol update JobId={job} Priority=4000000", label="change"),
        within_s=40,
    ),
    story(
        "order-top",
        *BUSY,
        Job(label="plain", options=NODE, script="sleep 2"),
        Job(label="raised", options=NODE, script="sleep 2"),
        Do("scontrol top {raised}", ROOT, "top"),
        within_s=40,
    ),
    story("order-priority-option", *BUSY, Job(label="job", options=f"{NODE} --priority=1000"), within_s=40),
    story(
        "order-backfill-short",
        Job(label="busy", options="-w {n1} --gres=gpu:7 -t 2", script="sleep 12"),
        Until("busy"),
        Job(label="large", options=f"{NODE} -t 2", script="sleep 2"),
        Job(label="small", options="-w {n1} --gres=gpu:1 -t 1", script="sleep 2"),
        within_s=40,
    ),
    story(
        "order-large-is-not-starved",
        *(
            Job(label=f"busy{at}", options="-w {n1} --gres=gpu:4 -t 5", script=f"sleep {seconds}")
            for at, seconds in enumerate((6, 10))
        ),
        Until("busy1"),
        Job(label="large", options=f"{NODE} -t 5", script="sleep 2"),
        Pause(2),
        Job(label="small", options="-w {n1} --gres=gpu:4 -t 30", script="sleep 12"),
        within_s=60,
    ),
    story(
        "order-other-nodes-are-used",
        *BUSY,
        Job(label="blocked", options=NODE, script="sleep 2"),
        Job(label="elsewhere", options="-w {n2} --gres=gpu:8", script="sleep 2"),
        within_s=40,
    ),
    story(
        "order-unmanaged-first",
        Job(label="busy", options=f"{NODE} -p {{cpu}}", script="sleep 6"),
        Until("busy"),
        Job(label="job", options=NODE),
        within_s=40,
    ),
    story(
        "order-cpu-job-beside",
        Job(label="gpus", options=NODE, script="sleep 6"),
        Until("gpus"),
        Job(label="cpus", options="-p {cpu} -w {n1} -n4"),
        within_s=30,
    ),
)
