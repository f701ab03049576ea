"""Turns a line of `scontrol -o -d show job` into a frozen object: the only place that knows how scontrol prints jobs.

Users choose names, comments, paths and arguments freely, with spaces, "=" and line breaks in them, and scontrol escapes
nothing. Their text is not mistaken for Slurm's, because:

- Every time is printed through SLURM_TIME_FORMAT with an unguessable token in it (`Clockface`). So " SubmitTime=<token>" is
  found exactly once in a true record, and never in a user's text.
- Around that point scontrol prints only values that Slurm itself made or checked. State, reason, flags, nodes, sizes are read
  backwards or forwards from there, up to the first field of free text.
- Owner and priority come before it, behind the job's name; they are found from the right, over fields without "=". Where Slurm
  has no accounting it takes every account and every WCKey as well: slurmctld writes both in small letters, so none has " UserId=".
  It takes every MCS label too. A label with an owner in it looks like a name with one, so where there are two owners, each with a
  label, the owner is not known.
- `--cluster-constraint` and `--prefer` are printed between Slurm's own values. What follows them is read only if it is there once.
- GPU request and comments come after it, behind paths and arguments. Text there can mislead about its own job's request or
  mark, never about anything else; `JobRecord.comment_is_exact` is False where more than one reading is possible.

A text may have any encoding. Only the admin comment keeps bytes that are no UTF-8, because Headway writes it again.
"""

from __future__ import annotations

import re
from functools import lru_cache

from controller.base.errors import SlurmReplyError
from controller.base.text import clip, readable
from controller.slurm.hostlist import MOST_CPUS, MOST_NODE_GPUS, cpu_count, expand_indices, expand_nodes, gpu_mask
from controller.slurm.model.job import JobKey, NodeShare, Phase, SlurmJob, is_held
from controller.slurm.records import JobRecord
from controller.slurm.scontrol import values
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.parse_request import (
    GpuRequest,
    after_paths,
    gpus_requested,
    resources_requested,
    topology_requested,
)
from controller.slurm.scontrol.parse_texts import Texts, texts_of

_OWNER = re.compile(
    r"JobId=(?P<raw>\d+)(?: ArrayJobId=(?P<array>\d+))?(?: ArrayTaskId=(?P<tasks>\S+))?(?: ArrayTaskThrottle=(?P<throttle>\d+))?"
    r"(?: HetJobId=(?P<het>\d+) HetJobOffset=\d+)? JobName=(?P<name>(?:(?! UserId=[^=]*\(\d+\) GroupId=[^=]* MCS_label=).)*)"
    r" UserId=(?P<user>[^=]*)\((?P<uid>\d+)\) GroupId=[^=]*"
    r" MCS_label=[^=]* Priority=(?P<priority>\d+) Nice=(?P<nice>[^=]*) Account=(?P<account>(?:(?! UserId=).)*) QOS=(?P<qos>[^=]*)"
    r"(?: WCKey=(?:(?! UserId=).)*)?",
    re.DOTALL,
)
_OWNER_IN_DOUBT = re.compile(
    r"JobId=(?P<raw>\d+)(?: ArrayJobId=(?P<array>\d+))?(?: ArrayTaskId=(?P<tasks>\S+))?(?: ArrayTaskThrottle=(?P<throttle>\d+))?"
    r"(?: HetJobId=(?P<het>\d+) HetJobOffset=\d+)? JobName=(?P<name>.*?)(?P<user>)(?P<uid>) UserId=.* Priority=(?P<priority>\d+) "
    r".*?(?P<nice>)(?P<account>)(?P<qos>)",
    re.DOTALL,
)
_HET_SET = re.compile(r" HetJobIdSet=[\d,\-\[\]]+\Z")
_SLUID = re.compile(r" SLUID=[^\s=]*\Z")
"""Printed behind the name of every job since Slurm 25.11."""
_WHOLE_NODES = frozenset({"NODE", "TOPO"})
"""Values of Exclusive= (since Slurm 26.05) of jobs that share their nodes with no other job; the others: USER, MCS, NO."""
_WHOLE_NODES_BEFORE = frozenset({"NO", "TOPO"})
"""Values of OverSubscribe= with the same meaning, where there is no Exclusive=."""
_SHARE = re.compile(r" Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")
_SHARE_GPUS = re.compile(r"gpu(?::[^:,()]+)??:(\d+)(?:\(IDX:([\d,\-]*)\))?(?=,|\Z)")
"""Maximum number of GPUs of a node: a mask of GPUs is a number of so many bits."""
_EXPEDITED = " ExpeditedRequeue=Yes"
_FREE_TEXT = (" Network=", " Command=")
_OPTIONS_BETWEEN = (" ClusterFeatures=", " Prefer=")
"""Users' texts among Slurm's own values. Slurm checks neither."""
_AFTER_OPTIONS = " OverSubscribe="
"""First of Slurm's own values after these."""
_NO_TASKS = frozenset({"N/A", "4294967294"})
"""Values that scontrol prints as the tasks of an array that was cancelled before any of them started."""
_ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
_PENDING = frozenset(["PENDING", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"])
_RUNNING = frozenset(["RUNNING", "RESIZING", "SIGNALING"])
_LEAVING = frozenset(["COMPLETING", "EXPEDITING", "REQUEUED", "STAGE_OUT"])


def parse_job(text: str, clock: Clockface) -> JobRecord:
    """Return one record. Raises SlurmReplyError when it is none, or one that this version does not understand."""
    at = text.find(f" SubmitTime={clock.token}")
    state_at = text.rfind(" JobState=", 0, at) if at >= 0 else -1
    if state_at < 0:
        raise SlurmReplyError(f"not a job: {clip(text)}")
    owner = _OWNER.fullmatch(text, 0, state_at) or _OWNER_IN_DOUBT.fullmatch(text, 0, state_at)
    if owner is None:
        raise SlurmReplyError(f"not a job: {clip(text)}")
    free_at = min((i for key in _FREE_TEXT if (i := text.find(key, at)) >= 0), default=len(text))
    try:
        return _record(owner, readable(_middle(text, state_at, at, free_at)), text[free_at:], clock)
    except KeyError as error:
        raise SlurmReplyError(f"a job without {error.args[0]}=: {clip(text)}") from None
    except (
        ValueError,
        OverflowError,
    ) as error:  # a number that is none: the record is cut off, or of a later release
        raise SlurmReplyError(f"a job with a value that is not understood ({error}): {clip(text)}") from None


def _middle(text: str, state_at: int, submit_at: int, free_at: int) -> str:
    """Return the part with Slurm's own values, without the texts of users that lie among them.

    What comes after such a text is left out if the text may have imitated it.
    """
    places = [i for key in _OPTIONS_BETWEEN if (i := text.find(key, submit_at, free_at)) >= 0]
    if not places:
        return text[state_at:free_at]
    after = text.find(_AFTER_OPTIONS, min(places))
    sole = 0 <= after < free_at and text.find(_AFTER_OPTIONS, after + 1) < 0
    return text[state_at : min(places)] + (text[after:free_at] if sole else "")


def _record(owner: re.Match[str], middle: str, tail: str, clock: Clockface) -> JobRecord:
    fields = _fields(middle)
    gpus = gpus_requested(readable(tail))
    texts = texts_of(tail)
    begin, end = after_paths(tail)
    expedited, by_topology = tail.find(_EXPEDITED, begin, end) >= 0, topology_requested(tail)
    job = _job(owner, middle, fields, texts, gpus, clock, expedited=expedited, by_topology=by_topology)
    array_id = job.array_job_id
    jobs = (job,) if array_id is None else tuple(_tasks(job, array_id, owner["tasks"]))
    shows_bound = job.restarts == 0 or "-" in fields["NumNodes"]
    least_cpus = fields.get("MinCPUsNode", "")
    min_cpus_node = values.whole(least_cpus) if least_cpus.isdecimal() else None
    return JobRecord(
        values.whole(owner["raw"]),
        jobs,
        texts.exact,
        shows_bound,
        gpus.mixed,
        gpus.prefix,
        gpus.by_index,
        min_cpus_node,
    )


def _job(
    owner: re.Match[str],
    middle: str,
    fields: dict[str, str],
    texts: Texts,
    gpus: GpuRequest,
    clock: Clockface,
    *,
    expedited: bool,
    by_topology: str,
) -> SlurmJob:
    state = fields["JobState"]
    phase = phase_of(state, has_nodes=bool(values.plain(fields.get("NodeList", ""))))
    ended = phase is Phase.ENDED
    pending = phase is Phase.PENDING
    submit_s = clock.seconds(fields["SubmitTime"]) or 0.0
    return SlurmJob(
        key=JobKey(owner["raw"], int(submit_s)),
        user=readable(owner["user"]),
        name=readable(_name(owner, fields)),
        partition=fields["Partition"],
        phase=phase,
        state=state,
        reason=fields["Reason"],
        held=is_held(owner["priority"] == "0", phase, fields["Reason"]),
        admin_comment=texts.admin_comment,
        comment=readable(texts.comment),
        request=resources_requested(fields, gpus),
        allocated=() if pending or ended else _shares(middle, fields, phase),
        batch=fields["BatchFlag"] != "0",
        requeue=fields["Requeue"] != "0",
        restarts=values.whole(fields["Restarts"]),
        eligible_time_s=clock.seconds(fields.get("EligibleTime")),
        start_time_s=None if pending else clock.seconds(fields.get("StartTime")),
        end_time_s=None if pending else clock.seconds(fields.get("EndTime")),
        time_limit_s=values.duration_s(fields["TimeLimit"]),
        features=values.plain(fields.get("Features", "")),
        reservation=values.plain(fields.get("Reservation", "")),
        account=readable(values.plain(owner["account"])),
        qos=readable(values.plain(owner["qos"])),
        dependency=values.plain(fields.get("Dependency", "")),
        exclusive=_has_whole_nodes(fields),
        licenses=values.plain(fields.get("Licenses", "")),
        array_job_id=values.whole(owner["array"]) if owner["array"] else None,
        het_job_id=values.whole(owner["het"]) if owner["het"] else None,
        raw_id=values.whole(owner["raw"]),
        expedited=expedited,
        nice=values.whole(owner["nice"] or "0"),
        user_id=values.whole(owner["uid"]) if owner["uid"] else None,
        latest_start_s=_latest_start_s(fields, clock) if pending else None,
        by_topology=by_topology,
        array_throttle=values.whole(owner["throttle"] or "0"),
    )


def _latest_start_s(fields: dict[str, str], clock: Clockface) -> float | None:
    """Return the latest start with which a job keeps its deadline, by its minimum time limit, or else by its time limit."""
    deadline_s = clock.seconds(fields.get("Deadline"))
    if deadline_s is None:
        return None
    least = fields.get("TimeMin", "N/A")
    return deadline_s - (values.duration_s(fields["TimeLimit"] if least == "N/A" else least) or 0.0)


def _name(owner: re.Match[str], fields: dict[str, str]) -> str:
    """Return the job's name without what Slurm prints between it and the owner.

    LicensesAlloc= is where no user can write, and in every record of the releases that print a SLUID. So where it is missing,
    " SLUID=..." is a part of the name; where it is there, only the last one is Slurm's.
    """
    name = _HET_SET.sub("", owner["name"]) if owner["het"] else owner["name"]
    return _SLUID.sub("", name) if "LicensesAlloc" in fields else name


def _has_whole_nodes(fields: dict[str, str]) -> bool:
    """Return whether the job shares its nodes with no other job.

    Since Slurm 26.05 Exclusive= says so, and ordinary jobs have OverSubscribe=NO too.
    """
    exclusive = fields.get("Exclusive")
    return fields.get("OverSubscribe") in _WHOLE_NODES_BEFORE if exclusive is None else exclusive in _WHOLE_NODES


def _tasks(job: SlurmJob, array_id: int, tasks: str | None) -> list[SlurmJob]:
    """Return one job for each array task. (dataclasses.replace would take ten times as long, for thousands of tasks.)"""
    if tasks is None or tasks in _NO_TASKS:
        return [job]
    values_of = [getattr(job, name) for name in SlurmJob.__slots__]
    submit_time_s = job.key.submit_time_s
    return [SlurmJob(JobKey(f"{array_id}_{task}", submit_time_s), *values_of[1:]) for task in expand_indices(tasks)]


def _fields(middle: str) -> dict[str, str]:
    """Return the fields of the part without free text; of repeated ones, the first."""
    fields: dict[str, str] = {}
    last = ""
    for part in middle.split(" "):
        key, equals, value = part.partition("=")
        if not equals:
            if part and last:
                fields[last] += f" {part}"
        elif key not in fields:
            fields[key] = value
            last = key
        else:
            last = ""
    return fields


def _shares(middle: str, fields: dict[str, str], phase: Phase) -> tuple[NodeShare, ...]:
    if phase is Phase.COMPLETING:
        # The detail lines still name every node of the run, but no GPUs; NodeList has the nodes that are left.
        return _shares_by_total(fields)
    groups = _SHARE.findall(middle)
    if not groups:
        return _shares_by_total(fields)
    shares = tuple(
        NodeShare(node, *_gpus_allocated(gres), cpu_count(cpu_ids), _memory_mib(memory))
        for nodes, cpu_ids, memory, gres in groups
        for node in expand_nodes(nodes)
    )
    if len({share.node for share in shares}) < len(shares):
        raise SlurmReplyError(f"it has a node twice: {clip(middle, 200)}")
    return shares


@lru_cache(maxsize=4096)
def _gpus_allocated(gres: str) -> tuple[int, int]:
    """Return number and mask of the GPUs in "gpu:g0:1(IDX:0),gpu:g4:0(IDX:)" or "gpu:a100:6(IDX:0-5)"."""
    total = mask = 0
    for number, indices in _SHARE_GPUS.findall(gres):
        total += values.whole(number)
        mask |= gpu_mask(indices)
    values.within(total, MOST_NODE_GPUS, gres)
    return total, mask if mask.bit_count() == total else 0


def _memory_mib(text: str) -> int:
    return values.within(values.whole(text), values.MOST_MIB, text)


def _shares_by_total(fields: dict[str, str]) -> tuple[NodeShare, ...]:
    """Return the nodes that are left, each with an equal part, rounded up, of what the whole run occupies."""
    nodes = expand_nodes(fields.get("NodeList", ""))
    if not nodes:
        return ()
    alloc = values.plain(fields.get("AllocTRES", "")) or fields.get("TRES", "")
    tres = dict(item.partition("=")[::2] for item in alloc.split(","))
    count = max(values.whole(tres.get("node", "0")), len(nodes))
    gpus = values.gpus(fields.get("JOB_GRES", "")).count or values.whole(tres.get("gres/gpu", "0"))
    cpus = values.whole(tres.get("cpu", "0"))
    memory_mib = values.size_mib(tres.get("mem", "0")) or 0
    share = (
        values.within(-(-gpus // count), MOST_NODE_GPUS, alloc),
        0,
        values.within(-(-cpus // count), MOST_CPUS, alloc),
        values.within(-(-memory_mib // count), values.MOST_MIB, alloc),
    )
    return tuple(NodeShare(node, *share) for node in nodes)


def phase_of(state: str, *, has_nodes: bool) -> Phase:
    """Return the phase of a job in that state."""
    word = state.split(",", 1)[0]
    if word in _PENDING:
        return Phase.PENDING
    if word in _RUNNING:
        return Phase.RUNNING
    if word in _ENDED:
        return Phase.ENDED
    match word:
        case "CONFIGURING":
            return Phase.CONFIGURING
        case "SUSPENDED" | "STOPPED":
            return Phase.SUSPENDED
    # COMPLETING, STAGE_OUT, REQUEUED, and words of later Slurm versions: the job keeps its nodes, and is left alone. While a job is
    # EXPEDITING, Slurm finds out whether it has to start it again on its nodes.
    return Phase.COMPLETING if has_nodes or word in _LEAVING else Phase.ENDED
