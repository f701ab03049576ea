"""Limits of associations and QOS, which slurmdbd keeps."""

from __future__ import annotations

from tests.parity.case import OTHER, Case, Do, Job, Pause, Until, story

SUBJECT = "Accounts, QOS and limits"
GPU = "--gres=gpu:1"


def limited(name: str, *steps: Job | Do | Until | Pause, **fields: object) -> Case:
    """Return a case that needs slurmdbd."""
    return story(name, *steps, accounting=True, **fields)


CASES = (
    limited("account-named", Job(options=f"-A capped {GPU}")),
    limited("account-unknown", Job(options=f"-A nothing {GPU}")),
    limited("account-of-others", Job(options=f"-A capped {GPU}", user=OTHER)),
    limited("user-without-account", Job(options=GPU, user="man")),
    limited("qos-named", Job(options=f"--qos=high {GPU}")),
    limited("qos-unknown", Job(options=f"--qos=nothing {GPU}")),
    limited("qos-not-allowed", Job(options=f"-A brief --qos=wall {GPU}")),
    limited("qos-too-many-gpus", Job(options="--qos=small --gres=gpu:4"), within_s=10),
    limited("qos-too-many-gpus-denied", Job(options="--qos=deny --gres=gpu:4"), within_s=10),
    limited("qos-within", Job(options="--qos=small --gres=gpu:2")),
    limited("qos-too-long", Job(options=f"--qos=wall -t 5 {GPU}"), within_s=10),
    limited("qos-too-long-denied", Job(options=f"--qos=short -t 5 {GPU}"), within_s=10),
    limited(
        "qos-one-job-a-user",
        Job(label="first", options=f"--qos=one {GPU}", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"--qos=one {GPU}"),
        within_s=40,
    ),
    limited(
        "qos-one-job-of-each-user",
        Job(label="first", options=f"--qos=one {GPU}", script="sleep 6", user="sys"),
        Until("first"),
        Job(label="second", options=f"--qos=one {GPU}", user="games"),
        within_s=40,
    ),
    limited(
        "qos-gpus-a-user",
        Job(label="first", options="--qos=few --gres=gpu:4", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"--qos=few {GPU}"),
        Job(label="third", options=GPU),
        within_s=40,
    ),
    limited(
        "qos-submissions",
        Job(label="first", options=f"--qos=queue {GPU}", script="sleep 5"),
        Job(label="second", options=f"--qos=queue {GPU}"),
        within_s=20,
    ),
    limited(
        "account-gpus",
        Job(label="first", options="-A capped --gres=gpu:8", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"-A capped {GPU}"),
        within_s=40,
    ),
    limited("account-gpus-never", Job(options="-A capped -N2 --gres=gpu:8"), within_s=10),
    limited(
        "account-one-job",
        Job(label="first", options=f"-A single {GPU}", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"-A single {GPU}"),
        within_s=40,
    ),
    limited(
        "account-one-submission",
        Job(label="first", options=f"-A submits {GPU}", script="sleep 5"),
        Job(label="second", options=f"-A submits {GPU}"),
        within_s=20,
    ),
    limited("account-too-long", Job(options=f"-A brief -t 5 {GPU}"), within_s=10),
    limited("account-too-many-nodes", Job(options=f"-A nodes -N2 {GPU}"), within_s=10),
    limited(
        "account-one-job-of-the-group",
        Job(label="first", options=f"-A group {GPU}", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"-A group {GPU}", user=OTHER),
        within_s=40,
    ),
    limited(
        "account-array-over-the-limit",
        Job(options=f"-A single -a 0-1 {GPU}", script="sleep 3"),
        within_s=60,
    ),
    limited(
        "limit-raised-by-change-of-account",
        Job(label="first", options="-A capped --gres=gpu:8", script="sleep 12"),
        Until("first"),
        Job(label="second", options=f"-A capped {GPU}"),
        Pause(3),
        Do("scontrol update JobId={second} Account=lab", label="change"),
        within_s=40,
    ),
)
