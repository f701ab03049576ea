"""The jobs of a recording: one of each kind that Slurm prints in its own way. Every release gets the same, and refuses some."""

from __future__ import annotations

from collections.abc import Mapping

JOBS: Mapping[str, tuple[str, ...]] = {
    "one": ("--gres=gpu:1",),
    "two-nodes": ("-N2", "--gpus-per-node=4"),
    "gpus12": ("--gpus=12",),
    "per-task": ("-n2", "--gpus-per-task=2"),
    "tres-per-task": ("-n2", "--tres-per-task=gres/gpu:1"),
    "per-socket": ("--gpus-per-socket=1", "--sockets-per-node=1"),
    "exclusive": ("--exclusive", "--gres=gpu:1"),
    "excl-user": ("--exclusive=user", "--gres=gpu:1"),
    "memgpu": ("--gpus=2", "--mem-per-gpu=1G", "--cpus-per-gpu=2"),
    "name with spaces SLUID=x": ("--gres=gpu:1",),
    "extra": ("--gres=gpu:1", "--comment=cc headway=preemptible", "--extra=x y=1"),
    "held-gres": ("-H", "--gres=gpu:2"),
    "held-gpus12": ("-H", "--gpus=12"),
    "held-n2": ("-H", "-n2", "--gpus=24", "-c2"),
    "held-N1-3": ("-H", "-N1-3", "--gpus=6"),
    "held-c2": ("-H", "-c2", "--gres=gpu:1"),
    "held-per-task": ("-H", "-n4", "--gpus-per-task=1"),
    "held-ntasks-per-gpu": ("-H", "--gpus=2", "--ntasks-per-gpu=2"),
    "array": ("-H", "--array=0-5%2", "--gres=gpu:1"),
    "begin": ("--begin=now+1hour", "--gres=gpu:1"),
    "deadline": ("-H", "--deadline=now+2hours", "--time=10", "--gres=gpu:1"),
    "switches": ("-H", "-N2", "--switches=1@10", "--gres=gpu:1"),
    "prefer": ("-H", "--prefer=fast", "--gres=gpu:1"),
    "constraint": ("-H", "-C", "fast", "--gres=gpu:1"),
    "het": ("-H", "--gres=gpu:1", ":", "--gres=gpu:2"),
    "nodelist": ("-H", "-w", "n1", "--gres=gpu:1"),
    "exclude": ("-H", "-x", "n1", "--gres=gpu:1"),
    "contiguous": ("-H", "--contiguous", "-N2", "--gres=gpu:1"),
    "licenses": ("-H", "-L", "foo:1", "--gres=gpu:1"),
    "signal": ("-H", "--signal=B:USR1@60", "--requeue", "--gres=gpu:1"),
    "expedite": ("-H", "--requeue=expedite", "--gres=gpu:1"),
    "segment": ("-H", "-N2", "--segment=1", "--gres=gpu:1"),
    "overcommit": ("-H", "-O", "-n8", "--gres=gpu:1"),
    "two-types": ("-H", "--gres=gpu:a100:1,gpu:h100:1"),
    "dep-afterok": ("-d", "afterok:1", "--gres=gpu:1"),
    "dep-two": ("-d", "afterany:1:2", "--gres=gpu:1"),
    "dep-singleton": ("-d", "singleton", "--gres=gpu:1"),
}
"""Name of the job → its options."""
