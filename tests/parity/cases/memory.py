"""Memory, and jobs that have their nodes to themselves."""

from __future__ import annotations

from tests.parity.case import Job, Until, one, stepped, story

SUBJECT = "Memory and exclusive nodes"
GPU = "--gres=gpu:1"

CASES = (
    stepped("mem", f"--mem=8G {GPU}"),
    stepped("mem-two-nodes", f"-N2 --mem=8G {GPU}"),
    stepped("mem-all", f"--mem=0 {GPU}"),
    one("mem-too-much", f"--mem=900G {GPU}"),
    stepped("mem-per-cpu", f"--mem-per-cpu=2G -c4 {GPU}"),
    one("mem-per-cpu-too-much", f"--mem-per-cpu=100G -c4 {GPU}"),
    stepped("mem-per-gpu-total", "--gpus=2 --mem-per-gpu=8G"),
    stepped("mem-per-gpu-two-nodes", "-N2 --gpus-per-node=2 --mem-per-gpu=8G"),
    one("mem-per-gpu-too-much", "--gres=gpu:8 --mem-per-gpu=64G"),
    one("mem-two-kinds", f"--mem=8G --mem-per-cpu=1G {GPU}"),
    stepped("mem-bind", f"--mem-bind=none {GPU}"),
    stepped("mem-bind-local", f"--mem-bind=local {GPU}"),
    stepped("exclusive-mcs", f"--exclusive=mcs {GPU}"),
    stepped("exclusive-topo", f"--exclusive=topo {GPU}"),
    stepped("exclusive", f"--exclusive {GPU}"),
    stepped("exclusive-two-nodes", f"--exclusive -N2 {GPU}"),
    stepped("exclusive-all-gpus", "--exclusive --gres=gpu:8"),
    stepped("exclusive-user", f"--exclusive=user {GPU}"),
    stepped("exclusive-total", "--exclusive --gpus=8"),
    stepped("oversubscribe", f"--oversubscribe {GPU}"),
    story(
        "mem-busy",
        Job(label="first", options=f"-w {{n1}} --mem=200G {GPU}", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"-w {{n1}} --mem=100G {GPU}"),
        within_s=30,
    ),
    story(
        "exclusive-waits",
        Job(label="first", options=f"-w {{n1}} {GPU}", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"-w {{n1}} --exclusive {GPU}"),
        within_s=30,
    ),
    story(
        "exclusive-is-alone",
        Job(label="first", options=f"-w {{n1}} --exclusive {GPU}", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"-w {{n1}} {GPU}"),
        within_s=30,
    ),
    story(
        "exclusive-user-of-another",
        Job(label="first", options=f"-w {{n1}} --exclusive=user {GPU}", script="sleep 5"),
        Until("first"),
        Job(label="same", options=f"-w {{n1}} --exclusive=user {GPU}"),
        Job(label="other", options=f"-w {{n1}} {GPU}", user="bin"),
        within_s=30,
    ),
)
