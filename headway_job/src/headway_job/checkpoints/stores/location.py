"""Opens the store of a run: under the URL that its script gives, or in the default folder."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
from contextlib import suppress
from typing import Callable, Iterable, List, Mapping, Optional

from ... import started
from ..errors import Refused
from .base import Store
from .local import LocalStore
from .redact import redact_url
from .remote import RemoteStore

_log = logging.getLogger("headway_job")
_BASE = "HEADWAY_CHECKPOINT_DIR"
_WITHIN = "checkpoints"
"""Folder within the one where the program was started. Another default would hide the checkpoints of runs started again."""
_CLAIM = "job-"
"""With a job's id, the name of a folder in that of a run, which says that it belongs to that job."""
_PROGRAM = "arguments-"
_JOB_ID = re.compile(r"[0-9]+(_[0-9]+(\.[0-9]+)?)?")


def open_store(url: Optional[str], name: Optional[str], *, single_rank: bool) -> Store:
    """Return the store of the given URL, or that of the default folder. `single_rank`: torch.distributed is not in use."""
    _check_ranks(os.environ, single_rank=single_rank)
    return _open(default_url(name, single_rank=single_rank) if url is None else url)


def default_url(name: Optional[str], *, single_rank: bool) -> str:
    """Return the default folder, by the job's id and the name, or that of the script. Raises Refused."""
    _check_ranks(os.environ, single_rank=single_rank)
    if single_rank and _number(os.environ, "SLURM_STEP_NUM_TASKS") > 1:
        raise Refused(
            "This process is one of several of a Slurm step, but torch.distributed is not initialized, so all would use the "
            "same folder. Call init_process_group before headway_job.checkpoint; or, if each trains by itself, give each "
            "process its own folder."
        )
    return _default_url(os.environ, name or _script())


def program_folder(digest: str) -> str:
    """Return the name of the folder, within a default folder, of a program with other arguments than the first."""
    return _PROGRAM + digest


def open_earlier(source: str, name: Optional[str], digest: str = "") -> Optional[Store]:
    """Return the store of another job of this user, by its id (of an array: 17_1), or by its folder or URL; None = there is none.

    `digest`: of this program, for which the other job may have a folder of its own. Nothing is created.
    """
    env = {"SLURM_CLUSTER_NAME": os.environ.get("SLURM_CLUSTER_NAME", ""), "SLURM_JOB_ID": source}
    if _JOB_ID.fullmatch(source):
        urls = [f"{base}/{_earlier_folder(base, env, name or _script())}" for base in _bases(os.environ)]
        if name is None and digest:
            urls = [_within(url, program_folder(digest)) for url in urls]
    else:
        urls = [source, _from_start(source)]
    for url in urls:
        local = _local(url)
        if local is None or os.path.isdir(local):
            return _open(url)
    return None


def _within(url: str, folder: str) -> str:
    """Return the folder within the other one, if it is there."""
    local = _local(url)
    there = folder in _names_in(url) if local is None else os.path.isdir(f"{local}/{folder}")
    return f"{url}/{folder}" if there else url


def _check_ranks(env: Mapping[str, str], *, single_rank: bool) -> None:
    if single_rank and _number(env, "WORLD_SIZE") > 1:
        raise Refused(
            "This process is one of several (WORLD_SIZE is set). Call init_process_group before headway_job.checkpoint."
        )


def warn_of_relative(url: object, env: Mapping[str, str]) -> None:
    """Warn if a job's new folder is below one to which the program has changed: started again, it may change to another one."""
    local = _local(url) if isinstance(url, str) else None
    started_in = started.folder()
    if local is None or os.path.isabs(local) or os.path.lexists(local) or not started_in or not env.get("SLURM_JOB_ID"):
        return
    if os.path.realpath(started_in) != os.path.realpath(""):
        _log.warning(
            "Checkpoints are kept in the folder %s, as the path %s is relative, and the program has changed its folder since it "
            "was started in %s. If Slurm starts the job again and the program changes to another folder (Hydra does so with "
            "hydra.job.chdir=True), it does not find them, and begins at step 0. Give headway_job.checkpoint an absolute path; or "
            "none: the default folder does not depend on such a change.",
            os.path.abspath(local), local, started_in,
        )  # fmt: skip


def _default_url(env: Mapping[str, str], name: str) -> str:
    """Return the run's default folder: below the folder in which the program was started, if the path of the base is relative.

    Earlier versions began at the folder to which the program had changed: if the run's folder is only there, it is used.
    """
    found = []
    for base in _bases(env):
        folder = _default_folder(base, env, name)
        if _exists(base, folder):
            return f"{base}/{folder}"
        found.append(f"{base}/{folder}")
    return found[0]


def _bases(env: Mapping[str, str]) -> List[str]:
    """Return the folder or URL that has the default folders of all runs; if earlier versions had another one, that, too."""
    base = (env.get(_BASE) or _WITHIN).rstrip("/")
    first = _from_start(base)
    return [first] if _local(base) is None or os.path.realpath(first) == os.path.realpath(base) else [first, base]


def _from_start(url: str) -> str:
    """Return the path, absolute, as it was meant in the folder in which the program was started; a URL as it is."""
    local = _local(url)
    return url if local is None else os.path.join(started.folder() or os.path.abspath(""), local)


def _open(url: str) -> Store:
    local = _local(url)
    if local is not None:
        return LocalStore(local)
    return RemoteStore(url)


def key(env: Mapping[str, str], name: str) -> str:
    """Return a folder name that no two jobs and no two tasks of an array share, and that a requeued job finds again.

    It has only ids, as the name of a job can be changed between two runs. With the variables of an array, it has the job's own id,
    too: a job that a task of an array submits inherits them.
    """
    return _joined(env, name, _unambiguous)


def _joined(env: Mapping[str, str], name: str, rule: Callable[[str], str]) -> str:
    return "-".join(rule(part) for part in (env.get("SLURM_CLUSTER_NAME", ""), _job(env), name) if part) or "run"


def array_folder(env: Mapping[str, str], name: str, names: Iterable[str]) -> Optional[str]:
    """Return the folder among `names` of a job by an id that a user knows: of a task (17_1), or of a job with an array's variables.

    Of several for one task, take that with the lowest id: the others are of jobs that the task submitted, so they came later.
    None = there is none.
    """
    job, cluster = _job(env), env.get("SLURM_CLUSTER_NAME", "")
    ids = rf"{re.escape(job)}\.([0-9]+)" if "_" in job else rf"[0-9]+_[0-9]+\.({re.escape(job)})"
    before, after = (_unambiguous(cluster) + "-" if cluster else ""), ("-" + _unambiguous(name) if name else "")
    form = re.compile(re.escape(before) + ids + re.escape(after))
    found = ((form.fullmatch(each), each) for each in names)
    return min(((int(match.group(1)), each) for match, each in found if match), default=(0, None))[1]


def older_key(env: Mapping[str, str], name: str, names: Iterable[str]) -> Optional[str]:
    """Return the folder among `names` that an earlier version made for this job, with the job's name in it; None = there is none.

    Without the cluster's name there is none, as a folder of another cluster could look the same.
    If there are several (the job was renamed while that version ran), take the one with its current name, else the last by name.
    """
    before, after = _clean(env.get("SLURM_CLUSTER_NAME", "")), f"-{_clean(_job(env))}-{_clean(name)}"
    if not _job(env) or not before:
        return None
    form = re.compile(f"{re.escape(before)}-[^-]+{re.escape(after)}")
    found = sorted(each for each in names if form.fullmatch(each))
    by_name = f"{before}-{_clean(env.get('SLURM_JOB_NAME', ''))}{after}"
    return by_name if by_name in found else (found[-1] if found else None)


def _earlier_folder(base: str, env: Mapping[str, str], name: str) -> str:
    """Return another job's folder below `base`: with its id alone, or with those of an array."""
    names = [] if _exists(base, key(env, name)) else _names_in(base)
    found = None if key(env, name) in names else array_folder(env, name, names)
    return found or _default_folder(base, env, name)


def _default_folder(base: str, env: Mapping[str, str], name: str) -> str:
    """Return the run's folder below `base`: the one that an earlier version made, if there is one and no newer one."""
    wanted = key(env, name)
    if _of_array(env):
        return wanted if _exists(base, wanted) else _older_array_folder(base, env, name) or wanted
    plain = _joined(env, name, _clean)
    if not _job(env) and plain == wanted:
        return wanted
    if _exists(base, wanted):
        return wanted
    names = [plain] if _exists(base, plain) else _names_in(base)
    if wanted in names:
        return wanted
    if plain in names:
        _log.warning(
            "Checkpoints are kept in the folder %s, which an earlier version of headway_job has named. Another run may use it, "
            "too, if its name differs from %r only in characters that folders cannot have, or after the 60th character. To keep "
            "them apart, rename the folder to %s between two runs.",
            plain, name, wanted,
        )  # fmt: skip
        return plain
    return older_key(env, name, names) or wanted


def _older_array_folder(base: str, env: Mapping[str, str], name: str) -> Optional[str]:
    """Return the folder that an earlier version made for this task of an array, without the job's own id; None = there is none.

    Only a job that Slurm has started again can have one. Another one that finds it has inherited the variables of the array, and
    maybe the count of starts, too. So the first job that uses the folder leaves its id there, and no other job uses it.
    """
    if _number(env, "SLURM_RESTART_COUNT") < 1:
        return None
    names = _names_in(base)
    if key(env, name) in names:
        return None
    task = {**env, "SLURM_JOB_ID": _task(env), "SLURM_ARRAY_JOB_ID": ""}
    older = [each for each in (key(task, name), _joined(task, name, _clean)) if each in names or _exists(base, each)]
    found = older[0] if older else older_key(task, name, names)
    if found is not None and not _claimed(f"{base}/{found}", env):
        return None
    if found is not None:
        _log.warning(
            "Checkpoints are kept in the folder %s, which an earlier version of headway_job has named. Jobs that this task of an "
            "array submits may use it, too. To keep them apart, rename the folder to %s between two runs.",
            found, key(env, name),
        )  # fmt: skip
    return found


def _claimed(folder: str, env: Mapping[str, str]) -> bool:
    """Claim the folder of a run for this job, and return True; False = another job has claimed it. Raises Refused.

    All ranks do so at once, with the same id.
    """
    mark = _CLAIM + env.get("SLURM_JOB_ID", "")
    try:
        store = _open(folder)
        claims = [each for each in store.folders() if each.startswith(_CLAIM)]
    except OSError as error:
        raise _not_listed(folder, error) from error
    if claims:
        return mark in claims
    with suppress(OSError):  # a full disk, or one that is read-only: the checkpoints there can be restored nevertheless
        store.make(mark)
        if mark not in store.folders():  # an object store has no empty folders
            store.write(mark, "claim", lambda _file: None)
    return True


def _names_in(base: str) -> List[str]:
    """Return the names in the base folder. Raises Refused if it cannot be read, as there may be checkpoints."""
    local = _local(base)
    try:
        if local is None:
            return RemoteStore(base).folders()
        return os.listdir(local)
    except FileNotFoundError:
        return []
    except PermissionError as error:
        if local is None:
            raise _not_listed(base, error) from error
        _log.warning(
            "This user may not list the folder %s, so checkpoints of an earlier version of headway_job, whose folders have the "
            "job's name, are not found there.",
            local,
        )  # fmt: skip
        return []
    except OSError as error:
        raise _not_listed(base, error) from error


def _not_listed(base: str, error: OSError) -> Refused:
    return Refused(
        f"The folder of checkpoints {redact_url(base)} cannot be listed: {error.strerror or error}. The run does not begin at "
        "step 0 as long as there may be some. Start it again when the folder can be listed."
    )


def _exists(base: str, folder: str) -> bool:
    """Return True if the folder exists in a file system, even if the base folder cannot be listed; False = not known."""
    local = _local(base)
    return local is not None and os.path.lexists(f"{local}/{folder}")


def _local(base: str) -> Optional[str]:
    """Return its path in a file system; None = it is in another store."""
    if base.startswith("file://"):
        return base[len("file://") :]
    return None if "://" in base else base


def _job(env: Mapping[str, str]) -> str:
    """Return an id that no other job of the cluster has; of a task of an array: 17_1.19."""
    job = env.get("SLURM_JOB_ID", "")
    return ".".join(part for part in (_task(env), job) if part) if _of_array(env) else job


def _of_array(env: Mapping[str, str]) -> bool:
    """Return True for a task of an array, and for jobs that one has submitted, which inherit its variables."""
    return bool(env.get("SLURM_ARRAY_JOB_ID") and env.get("SLURM_ARRAY_TASK_ID"))


def _task(env: Mapping[str, str]) -> str:
    return f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"


def _unambiguous(part: str) -> str:
    """Return a name that no other part gets: with a digest of the part, if it cannot be used unchanged."""
    clean = _clean(part)
    if clean == part:
        return part
    return f"{clean}_{hashlib.sha256(part.encode(errors='surrogatepass')).hexdigest()[:8]}"


def _clean(part: str) -> str:
    """Return a name that a file system accepts. Earlier versions used only this for folders."""
    return re.sub(r"[^A-Za-z0-9._]", "_", part)[:60].lstrip(".")


def _script() -> str:
    return str(os.path.splitext(os.path.basename((getattr(sys, "argv", None) or [""])[0]))[0])


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0
