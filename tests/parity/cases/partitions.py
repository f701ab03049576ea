"""Partitions: several at once, closed ones, limits, and priorities of partitions."""

from __future__ import annotations

from tests.parity.case import ROOT, Do, Job, Pause, Until, one, stepped, story

SUBJECT = "Partitions"
GPU = "--gres=gpu:1"

CASES = (
    stepped("partition-named", f"-p {{left}} {GPU}"),
    one("partition-unknown", f"-p nowhere {GPU}"),
    one("partition-closed-to-group", f"-p {{closed}} {GPU}"),
    one("partition-inactive", f"-p {{inactive}} {GPU}", within_s=8),
    one("partition-down", f"-p {{down}} {GPU}", within_s=8),
    one("partition-draining", f"-p {{drain}} {GPU}", within_s=8),
    one("partition-too-long", f"-p {{short}} -t 5 {GPU}", within_s=8),
    one("partition-too-many-nodes", f"-p {{short}} -t 1 -N3 {GPU}", within_s=8),
    one("partition-too-few-nodes", f"-p {{wide}} -N1 {GPU}", within_s=8),
    stepped("partition-least-nodes", f"-p {{wide}} {GPU}"),
    one("partition-too-large", f"-p {{left}} -N3 {GPU}"),
    one("partition-node-of-another", f"-p {{right}} -w {{n1}} {GPU}"),
    stepped("partition-whole-nodes", f"-p {{whole}} {GPU}"),
    stepped("partition-memory-per-gpu", "-p {lean} --gres=gpu:2"),
    one("partition-too-many-cpus", f"-p {{lean}} -c16 {GPU}", within_s=8),
    one("partition-too-much-memory", f"-p {{lean}} --mem=64G {GPU}", within_s=8),
    stepped("partitions-two-idle", f"-p {{left}},{{right}} {GPU}"),
    story(
        "partitions-first-busy",
        *(Job(label=f"busy{at}", options=f"-w {{n{at}}} --gres=gpu:8", script="sleep 12") for at in (1, 2)),
        Until("busy1"),
        Until("busy2"),
        Job(label="job", options=f"-p {{left}},{{right}} {GPU}"),
        within_s=30,
        where=True,
    ),
    story(
        "partitions-second-busy",
        Job(label="busy", options="-w {n3} --gres=gpu:8", script="sleep 12"),
        Until("busy"),
        Job(label="job", options=f"-p {{right}},{{left}} {GPU}"),
        within_s=30,
    ),
    stepped("partitions-first-too-small", "-p {right},{left} -N2 --gres=gpu:1"),
    one("partitions-first-down", f"-p {{down}},{{left}} {GPU}", within_s=15),
    one("partitions-all-too-small", f"-p {{right}},{{left}} -N3 {GPU}"),
    one("partitions-first-time-limit", f"-p {{short}},{{left}} -t 5 {GPU}", within_s=15),
    stepped("partitions-one-unmanaged", f"-p {{left}},{{cpu}} {GPU}"),
    stepped("partition-unmanaged", f"-p {{cpu}} {GPU}"),
    stepped("partition-without-gpus", "-n2"),
    story(
        "partition-tier-first",
        Job(label="busy", options="-w {n1} --gres=gpu:8", script="sleep 6"),
        Until("busy"),
        Job(label="ordinary", options="-w {n1} --gres=gpu:8", script="sleep 3"),
        Job(label="urgent", options="-p {high} -w {n1} --gres=gpu:8", script="sleep 3"),
        within_s=40,
    ),
    story(
        "partition-factor-first",
        Job(label="busy", options="-w {n1} --gres=gpu:8", script="sleep 6"),
        Until("busy"),
        Job(label="ordinary", options="-w {n1} --gres=gpu:8", script="sleep 3"),
        Job(label="favored", options="-p {favored} -w {n1} --gres=gpu:8", script="sleep 3"),
        within_s=40,
    ),
    story(
        "partition-changed-by-user",
        Job(label="busy", options="-w {n3} --gres=gpu:8", script="sleep 8"),
        Until("busy"),
        Job(label="job", options=f"-p {{right}} {GPU}"),
        Pause(2),
        Do("scontrol update JobId={job} Partition={left}", label="change"),
        within_s=30,
    ),
    story(
        "partition-goes-down-and-up",
        Do("scontrol update PartitionName={right} State=DOWN", ROOT, "down"),
        Job(options=f"-p {{right}} {GPU}"),
        Pause(4),
        Do("scontrol update PartitionName={right} State=UP", ROOT, "up"),
        undo=("scontrol update PartitionName={right} State=UP",),
        within_s=30,
    ),
)
