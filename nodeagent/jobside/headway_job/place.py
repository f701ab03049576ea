"""Where a run keeps its checkpoints, when its script does not say."""

from __future__ import annotations

import os
import re
import sys
from typing import Mapping, Optional

from .local_store import LocalStore
from .mishaps import Refused
from .remote_store import RemoteStore
from .shelf import Store

_BASE = "HEADWAY_CHECKPOINT_DIR"


def open_store(url: Optional[str], name: Optional[str], *, alone: bool) -> Store:
    """The store of a URL that was given, used as it is, or of the default place. `alone`: torch.distributed is not in use."""
    env = os.environ
    if alone and _number(env, "WORLD_SIZE") > 1:
        raise Refused(
            "This process is one of several (WORLD_SIZE). Call init_process_group before headway_job.checkpoint."
        )
    if url is None:
        if alone and _number(env, "SLURM_STEP_NUM_TASKS") > 1:
            raise Refused(
                "This process is one of several of a step, and they train apart or have not met yet. Call init_process_group "
                "before headway_job.checkpoint, or give each a folder of its own."
            )
        url = os.path.join(env.get(_BASE) or "checkpoints", key(env, name or _script()))
        if "://" in (env.get(_BASE) or ""):
            url = url.replace(os.sep, "/")
    assert url is not None
    if url.startswith("file://"):
        return LocalStore(url[len("file://") :])
    return RemoteStore(url) if "://" in url else LocalStore(url)


def key(env: Mapping[str, str], name: str) -> str:
    """A folder name that no two jobs share, nor two tasks of an array, and that a requeued job finds again."""
    job = env.get("SLURM_JOB_ID", "")
    if env.get("SLURM_ARRAY_JOB_ID") and env.get("SLURM_ARRAY_TASK_ID"):
        job = f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    parts = [env.get("SLURM_CLUSTER_NAME", ""), env.get("SLURM_JOB_NAME", "") if job else "", job, name]
    return "-".join(re.sub(r"[^A-Za-z0-9._]", "_", part)[:60].lstrip(".") for part in parts if part) or "run"


def _script() -> str:
    return str(os.path.splitext(os.path.basename((getattr(sys, "argv", None) or [""])[0]))[0])


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0
