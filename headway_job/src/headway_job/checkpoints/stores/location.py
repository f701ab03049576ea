"""Where a run keeps its checkpoints, when its script does not say."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
from typing import Callable, Iterable, List, Mapping, Optional

import torch

from ..catalog import Store
from ..errors import Refused
from .local import LocalStore
from .redact import address
from .remote import RemoteStore

_log = logging.getLogger("headway_job")
_BASE = "HEADWAY_CHECKPOINT_DIR"
_TRUST = "HEADWAY_TRUST_STORE"
_SAFE_TORCH = (2, 10)


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
        base = (env.get(_BASE) or "checkpoints").rstrip("/")
        url = f"{base}/{_default_folder(base, env, name or _script())}"
    return _opened(url, env)


def _opened(url: str, env: Mapping[str, str]) -> Store:
    local = _local(url)
    if local is not None:
        return LocalStore(local)
    check_trust(url, str(torch.__version__), env)
    return RemoteStore(url)


def check_trust(url: str, version: str, env: Mapping[str, str]) -> None:
    """Refuse a URL where this torch would trust whoever can write there. Raises Refused.

    `weights_only` of torch < 2.10 can be got around (CVE-2025-32434, CVE-2026-24747). In a file system the owner of every file is
    checked; a store behind a URL tells none.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if (found and tuple(map(int, found.groups())) >= _SAFE_TORCH) or env.get(_TRUST, "").lower() in (
        "yes",
        "1",
        "true",
    ):
        return
    raise Refused(
        f"Checkpoints under {address(url)} are loaded with torch {version}, which a file made for it can have execute code, and "
        "Headway cannot see who may write there. Use torch 2.10 or later, or a folder of a file system; or, if you alone can "
        f"write there, set {_TRUST}=yes."
    )


def key(env: Mapping[str, str], name: str) -> str:
    """A folder name that no two jobs share, nor two tasks of an array, and that a requeued job finds again.

    By ids alone: a job's name can be changed between two runs of it.
    """
    return _joined(env, name, _told_apart)


def _joined(env: Mapping[str, str], name: str, rule: Callable[[str], str]) -> str:
    return "-".join(rule(part) for part in (env.get("SLURM_CLUSTER_NAME", ""), _job(env), name) if part) or "run"


def older_key(env: Mapping[str, str], name: str, names: Iterable[str]) -> Optional[str]:
    """The folder among `names` that an earlier version made for this job, whose name was a part of it; None: there is none.

    Without a cluster's name none: another cluster's folder of today looks the same.
    Of several, as of a job that was renamed while that version ran, the one by its name now is taken, else the last by name.
    """
    before, after = _clean(env.get("SLURM_CLUSTER_NAME", "")), f"-{_clean(_job(env))}-{_clean(name)}"
    if not _job(env) or not before:
        return None
    form = re.compile(f"{re.escape(before)}-[^-]+{re.escape(after)}")
    found = sorted(each for each in names if form.fullmatch(each))
    by_name = f"{before}-{_clean(env.get('SLURM_JOB_NAME', ''))}{after}"
    return by_name if by_name in found else (found[-1] if found else None)


def _default_folder(base: str, env: Mapping[str, str], name: str) -> str:
    """The run's folder below `base`; the one that an earlier version made, where there is one and no newer one."""
    wanted, plain = key(env, name), _joined(env, name, _clean)
    if not _job(env) and plain == wanted:
        return wanted
    if _is_there(base, wanted):
        return wanted
    names = [plain] if _is_there(base, plain) else _names_in(base, env)
    if wanted in names:
        return wanted
    if plain in names:
        _log.warning(
            "Checkpoints are kept in %s, as an earlier version named it: another run whose name differs from %r in letters alone "
            "that no folder has, or behind the 60th, may use it too. Rename it to %s, between two runs, to keep them apart.",
            plain, name, wanted,
        )  # fmt: skip
        return plain
    return older_key(env, name, names) or wanted


def _names_in(base: str, env: Mapping[str, str]) -> List[str]:
    """What there is below the base folder. Raises Refused where that cannot be told: there may be checkpoints."""
    local = _local(base)
    try:
        if local is None:
            check_trust(base, str(torch.__version__), env)
            return RemoteStore(base).folders()
        return os.listdir(local)
    except FileNotFoundError:
        return []
    except PermissionError as error:
        if local is None:
            raise _not_listed(base, error) from error
        _log.warning(
            "%s may not be listed by this user: folders that an earlier version named by the job's name are not looked for.",
            local,
        )  # fmt: skip
        return []
    except OSError as error:
        raise _not_listed(base, error) from error


def _not_listed(base: str, error: OSError) -> Refused:
    return Refused(
        f"{address(base)}, where checkpoints are kept, cannot be listed: {error.strerror or error}. Nothing is begun anew "
        "while there may be some: start again when it can be."
    )


def _is_there(base: str, folder: str) -> bool:
    """In a file system, where a folder can be found in one that may be entered and not listed. False: not known."""
    local = _local(base)
    return local is not None and os.path.lexists(f"{local}/{folder}")


def _local(base: str) -> Optional[str]:
    """Its path in a file system; None: it is in another store."""
    if base.startswith("file://"):
        return base[len("file://") :]
    return None if "://" in base else base


def _job(env: Mapping[str, str]) -> str:
    if env.get("SLURM_ARRAY_JOB_ID") and env.get("SLURM_ARRAY_TASK_ID"):
        return f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    return env.get("SLURM_JOB_ID", "")


def _told_apart(part: str) -> str:
    """Of two parts that differ, the results differ too: with a digest of the whole where it is not kept as it is."""
    clean = _clean(part)
    if clean == part:
        return part
    return f"{clean}_{hashlib.sha256(part.encode(errors='surrogatepass')).hexdigest()[:8]}"


def _clean(part: str) -> str:
    """What a file system takes. Earlier versions named folders by this alone."""
    return re.sub(r"[^A-Za-z0-9._]", "_", part)[:60].lstrip(".")


def _script() -> str:
    return str(os.path.splitext(os.path.basename((getattr(sys, "argv", None) or [""])[0]))[0])


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0
