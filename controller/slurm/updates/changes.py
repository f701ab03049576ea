"""Changes that bring a job to a wanted state: pure functions from the job as read to the words of scontrol commands.

Every function compares the job as it is with the job as it should be. When nothing is left to change, the job is done. So the
same function decides what to send and, afterwards, whether it took effect; repeating it does no harm.

What Slurm 22.05 does with an update, measured:

- `NumNodes=k-k` raises tasks and CPUs to what k nodes need, and lowers tasks again with the nodes while the user gave no
  number of tasks. So NumTasks is sent only to restore a number that the user gave, and in an update of its own.
- CPUs are raised with the nodes, never lowered: NumCPUs must be put back together with the nodes. A job that keeps more CPUs
  than its tasks need ends up in BadConstraints.
- An upper bound of nodes can be raised but not removed, and "2" is refused where "2-2" is not: a job whose user gave none
  gets a bound that no cluster reaches. It may then start on the least number of nodes where Slurm would first have tried more.
- What it does with tasks, CPUs and generic resources stands in `request_words`.
- `ReqNodeList` takes nodes away from a job that runs, with the processes there, although Slurm then refuses the rest of the update.
  A held job may run by the time the update arrives, because the watchdog or root has released it. `ResetAccrueTime` in the same
  update makes Slurm refuse all of it unless the job is pending, and changes nothing for a held job, which accrues no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.slurm.client import Failure, FailureReason, Pin
from controller.slurm.hostlist import NODE_NAME
from controller.slurm.model.job import HELD_BY_ADMIN, JobKey, Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import CHECK_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.records import MANY_NODES
from controller.slurm.updates.comments import exchanged, with_mark
from controller.slurm.updates.found import Found
from controller.slurm.updates.gpu_binding import binding_words, is_bound
from controller.slurm.updates.request_words import (
    enough_tasks,
    gpu_words,
    lost_tasks,
    most_nodes,
    node_count_is_bound,
    same_range,
    share_words,
    size_words,
    task_words,
    tasks_per_node_taken_back,
    wanted_gpus,
    wanted_tasks_per_node,
)


@dataclass(frozen=True, slots=True)
class Command:
    """Words of one scontrol command about one job, and of another one that follows it at once."""

    words: tuple[str, ...]
    then: tuple[str, ...] = ()
    """Words of the second command about the same job; empty when there is none."""

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """Return the words of each command, in order."""
        return (self.words, self.then) if self.then else (self.words,)


PENDING_ONLY = "ResetAccrueTime"
"""Word of an update that Slurm refuses as a whole if the job is not pending."""

Step = Command | Failure | None
"""Next step for a job: a command to run; a failure, because it cannot be done; or None, because nothing is left to do."""


def pin_step(found: Found, pin: Pin, now_s: float) -> Step:
    """Bind a held job to its nodes; they replace the nodes that the job required before."""
    job = found.job
    refusal = _not_held(job) or (held_by_others(job) if job.is_held_by_others else None)
    refusal = refusal or _bad_pin(found, pin) or _lacks_indices(found, pin)
    if refusal is not None:
        return refusal
    request, original, count = job.request, pin.original, len(pin.nodes)
    tasks_per_node = wanted_tasks_per_node(found, pin)
    if taken_back := tasks_per_node_taken_back(found, tasks_per_node, original):
        return _update(job, taken_back)
    words = binding_words(found.record, request, pin) if pin.gpu_masks else gpu_words(found, wanted_gpus(pin))
    words += task_words(found, tasks_per_node, original)
    bound = node_count_is_bound(found, count)
    # They follow in an update of their own, as soon as the job shows its nodes.
    sizes = size_words(request, original, count) if pin.resized and (bound or found.updated) else []
    words += sizes
    if not bound and not sizes:
        words.append(f"NumNodes={count}-{count}")
        if request.num_cpus != original.num_cpus and not pin.resized:
            words.append(f"NumCPUs={original.num_cpus}")
    elif original.num_tasks < count and not pin.resized:
        words += enough_tasks(request, original, count)
    elif not pin.resized and (lost := lost_tasks(found, original, count)):
        words += lost
    elif original.gpus_per_task and request.num_cpus < original.num_cpus and not pin.resized:
        words.append(f"NumCPUs={original.num_cpus}")
    if set(request.required_nodes) != set(pin.nodes):
        words.append(f"ReqNodeList={','.join(pin.nodes)}")
    # After a requeue the begin time is Slurm's: a job with a later one, of its user, is not placed before. Without a requeue, it is
    # the user's, and stays, whatever our clock said at the placement.
    if job.restarts > 0 and job.eligible_time_s is not None and job.eligible_time_s > now_s + 1:
        words.append("StartTime=now")
    return _update(job, words)


def unpin_step(found: Found, original: ResourceRequest) -> Step:
    """Give a held job its own request back; also a job that Slurm is about to start again, if it is still pending.

    A job that is bound to GPUs by index keeps these, and its number of nodes (see controller.slurm.updates.gpu_binding).
    """
    job = found.job
    refusal = None if job.is_restarted_by_slurm else _not_held(job)
    if refusal is not None:
        return refusal
    if taken_back := tasks_per_node_taken_back(found, original.tasks_per_node, original):
        return _update(job, taken_back)
    request = job.request
    if is_bound(found.record, original):
        # Slurm accepts no request without indices any more. It places the job on GPUs with these, and on as many nodes.
        same = set(request.required_nodes) == set(original.required_nodes)
        return None if same else _update(job, [f"ReqNodeList={','.join(original.required_nodes)}"])
    words = gpu_words(found, original)
    if words and found.record.mixed_gres:
        return Failure("asks for generic resources that Headway cannot write back")
    words += task_words(found, original.tasks_per_node, original)
    nodes_restored, tasks_restored = same_range(found, original), request.num_tasks == original.num_tasks
    if not tasks_restored and (nodes_restored or found.updated):
        words.append(f"NumTasks={original.num_tasks}")
    elif not nodes_restored:
        words.append(f"NumNodes={original.min_nodes}-{most_nodes(found, original) or MANY_NODES}")
    if request.num_cpus != original.num_cpus:
        words.append(f"NumCPUs={original.num_cpus}")
    words += share_words(request, original)
    if set(request.required_nodes) != set(original.required_nodes):
        words.append(f"ReqNodeList={','.join(original.required_nodes)}")
    return _update(job, words)


def hold_step(found: Found, mark: str) -> Step:
    """Hold a pending job and mark it, in one update, so that there is never one without the other.

    Then turn it into a user's hold. A job that root or SlurmUser holds by an update is JobHeldAdmin, which the job's user cannot
    release; a later `uhold` makes it JobHeldUser (for a job that is held already, it changes only the reason).

    Another process of Headway, which released the job just before, may be about to remove the mark. So the mark is written with
    every hold, although the job had it when it was read, and once more if it is missing after the hold: without it the hold would
    count as one of others, and the job would wait for ever.

    A begin time that job_submit.lua gave to the job ends with the same update.

    Slurm may start the job right before the update, and then sets the priority of the running job to 0. It is released again,
    because a requeue would leave it held as by its user; also while its nodes are prepared, or when it was suspended since.
    """
    job = found.job
    if job.phase in STOPPABLE and job.held and mark in job.marks and USER_HOLD_MARK not in job.marks:
        return Command(("release", job.key.job_id))
    if job.phase is not Phase.PENDING:
        return Failure(f"is {job.state}, only pending jobs can be held")
    if job.is_its_users or (job.is_held_by_others and not found.updated):
        return held_by_others(job)
    # A job that Slurm itself has put on hold as impossible is free again at the next change of it (seen on 22.05).
    words = [] if job.held and not job.is_impossible else ["Priority=0"]
    marked = mark in job.admin_comment.split()
    if words or not marked:
        check = _check_token(job.admin_comment)
        comment = _writable(found, exchanged(exchanged(job.admin_comment, check, ""), PIN_MARK, mark))
        words += ["StartTime=now"] if _waits_for_check(job, check) else []
        if not isinstance(comment, Failure):
            words.append(f"AdminComment={comment}")
        elif not marked:
            return comment
    uhold = ("uhold", job.key.job_id)
    if not words:
        return Command(uhold) if job.reason == HELD_BY_ADMIN else None
    return Command(("update", f"JobId={job.key.job_id}", *words), then=uhold if "Priority=0" in words else ())


def _check_token(comment: str) -> str:
    """Return the token with the begin time that job_submit.lua gave to the job; empty when there is none."""
    return next((token for token in comment.split() if token.startswith(CHECK_MARK)), "")


def _waits_for_check(job: SlurmJob, check: str) -> bool:
    """Return whether the job has the begin time of this token still, and not a later one from its user."""
    digits, begin_s = check.removeprefix(CHECK_MARK), job.eligible_time_s
    return digits.isdecimal() and begin_s is not None and begin_s <= int(digits)


def release_step(found: Found) -> Step:
    """Release the job, if the hold is ours or Slurm's own."""
    job = found.job
    if job.is_held_by_others and job.phase is Phase.PENDING:
        return held_by_others(job)
    return Command(("release", job.key.job_id)) if job.held and job.phase is Phase.PENDING else None


def mark_step(found: Found, mark: str) -> Step:
    """Add a token to the admin comment."""
    job = found.job
    if mark in job.admin_comment.split():
        return None
    return _comment_step(found, with_mark(job.admin_comment, mark))


def unmark_step(found: Found, mark: str, instead: str = "", *, unless_held: bool = False) -> Step:
    """Remove a token, with the space that came with it, from the admin comment, and add another one.

    `unless_held`: a job that is held again keeps the token. If another process of Headway has held it since it was read, it gets
    the token back, because that process may have ended meanwhile.
    """
    job = found.job
    if job.phase is Phase.ENDED:
        return None  # the mark of an ended job has no effect
    comment = job.admin_comment
    wanted = exchanged(comment, mark, instead)
    if unless_held and job.is_held_again and (found.updated or wanted != comment):
        return held_again(job) if job.marks else _comment_step(found, exchanged(comment, instead, mark))
    return None if wanted == comment else _comment_step(found, wanted)


def begin_step(job: SlurmJob, begin_time_s: float | None, now_s: float) -> Step:
    """Set the earliest start; None: as soon as possible, which a job that has begun does not need any more."""
    if begin_time_s is None and job.phase.occupies_nodes:
        return None
    if job.phase is not Phase.PENDING:
        return Failure(f"is {job.state}, only pending jobs have a begin time")
    current_s = job.eligible_time_s
    if begin_time_s is None or begin_time_s <= now_s:
        return _update(job, ["StartTime=now"]) if current_s is not None and current_s > now_s + 1 else None
    wanted_s = int(begin_time_s)
    return None if current_s == wanted_s else _update(job, [f"StartTime=uts{wanted_s}"])


NO_HOLD_AT_REQUEUE = "was submitted with --requeue=expedite: Slurm would start it again at once, on the same nodes"
"""Obstacle to a stop (25.11.7: such a job starts within 0.2 s of any requeue)."""
_PAUSED_S = 5.0
"""Time for which a job that was seen running counts as running if its ranks have saved and wait, seconds: it does not end by
itself. A slow slurmctld seldom takes longer for the three requests of a requeue."""
_RUNNING_S = 0.5
"""The same for other jobs, which may end at any moment. That one of them ends within it is far less likely than that slurmctld is
slow; taken for stopped, it would run twice."""
STOPPABLE = frozenset({Phase.RUNNING, Phase.CONFIGURING, Phase.SUSPENDED})
"""Phases in which a job may be stopped. A COMPLETING job has ended or was cancelled, and a requeue would start it again."""


def requeue_refusal(found: Found | None, key: JobKey) -> Failure | None:
    """Return why a job must not be stopped and requeued; None when it may."""
    if found is None:
        return gone(key)
    job = found.job
    if job.phase is Phase.ENDED:
        return Failure(f"has ended ({job.state}): ended jobs are never restarted")
    if job.phase not in STOPPABLE:
        return Failure(f"is {job.state}, not running")
    if not job.requeue:
        return Failure("was submitted with --no-requeue")
    if job.expedited:
        return Failure(NO_HOLD_AT_REQUEUE)
    return None


def _not_held(job: SlurmJob) -> Failure | None:
    if job.phase is not Phase.PENDING:
        return Failure(f"is {job.state}, no longer pending")
    return None if job.held else Failure("is not held: Slurm may start it at any moment")


def _bad_pin(found: Found, pin: Pin) -> Failure | None:
    count = len(pin.nodes)
    if not count or len(set(pin.nodes)) != count or not all(NODE_NAME.fullmatch(node) for node in pin.nodes):
        return Failure(f"cannot be bound to {','.join(pin.nodes)!r}: not a list of distinct nodes")
    total, per_node = pin.original.gpus_per_job, pin.gpus_per_node
    if total and per_node is not None and per_node * count != total:
        return Failure(f"{per_node} GPUs on each of {count} nodes are not the {total} that it asks for")
    divides = total and per_node is not None and count > 1
    if divides and found.record.mixed_gres and not is_bound(found.record, pin.original):
        return Failure("asks for several GPU types or other generic resources, which only Slurm can divide among nodes")
    if pin.original.gpus_per_node and per_node not in {None, pin.original.gpus_per_node}:
        return Failure(f"asks for {pin.original.gpus_per_node} GPUs on each node, not {per_node}")
    if pin.original.gpus_per_task and per_node is not None:
        return _bad_pin_by_task(pin, pin.original.gpus_per_task, per_node)
    return None


def _lacks_indices(found: Found, pin: Pin) -> Failure | None:
    if pin.gpu_masks or not is_bound(found.record, pin.original):
        return None
    return Failure("is bound to GPUs by index, and too few of the same indices are known to be free on its nodes")


def _bad_pin_by_task(pin: Pin, gpus_per_task: int, gpus_per_node: int) -> Failure | None:
    tasks_per_node, rest = divmod(pin.original.num_tasks, len(pin.nodes))
    if rest or tasks_per_node * gpus_per_task != gpus_per_node:
        return Failure(
            f"{gpus_per_node} GPUs on each of {len(pin.nodes)} nodes are not {gpus_per_task} for each of "
            f"{pin.original.num_tasks} tasks"
        )
    if pin.original.tasks_per_node not in {None, tasks_per_node}:
        return Failure(f"asks for {pin.original.tasks_per_node} tasks on each node, not {tasks_per_node}")
    return None


def _update(job: SlurmJob, words: Sequence[str]) -> Step:
    if words and (job.is_restarted_by_slurm or any(word.startswith("ReqNodeList=") for word in words)):
        words = [PENDING_ONLY, *words]
    return Command(("update", f"JobId={job.key.job_id}", *words)) if words else None


def _comment_step(found: Found, comment: str) -> Step:
    written = _writable(found, comment)
    return written if isinstance(written, Failure) else _update(found.job, [f"AdminComment={written}"])


def _writable(found: Found, comment: str) -> str | Failure:
    if not found.record.comment_is_exact:
        return Failure(
            "its paths or comments look like fields of Slurm's own, so Headway does not change its admin comment"
        )
    if comment.startswith("+="):
        return Failure('its admin comment begins with "+=", which Slurm would read as an order to append')
    return comment


def held_by_others(job: SlurmJob) -> Failure:
    """Return the failure of a job that its user or an operator holds."""
    return Failure(
        f"is held by its user or an operator ({job.reason}), not by Headway; "
        f"`scontrol release {job.key.job_id}` lets Headway place it",
        FailureReason.NOT_OURS,
    )


def held_again(job: SlurmJob) -> Failure:
    """For a released job that is held again, and so keeps its mark."""
    return Failure(f"is held again ({job.reason}), so the mark stays", FailureReason.NOT_OURS)


def gone(key: JobKey) -> Failure:
    """Return the failure of a job that Slurm does not know."""
    return Failure(f"no job {key.job_id} with submit time {key.submit_time_s} is known to Slurm", FailureReason.GONE)


def was_stopped(before: SlurmJob | None, after: SlurmJob, took_s: float, is_paused: bool) -> bool:
    """Return whether a requeue has stopped the job; False: the job had ended, and Slurm put it back into the queue all the same.

    `before` and `after` were read right before and right after the requeue, within `took_s` seconds in all. The first reading
    counts. That the job is pending in the second one does not show that it had ended: a job that is stopped is completing for a
    short time only (17 to 23 ms on a quiet machine, 22.05), and a busy slurmctld answers later. When the two readings are far
    apart, though, the job may have run to its end after the first: then one that is pending may have ended. `is_paused`: its
    ranks have saved and wait.
    """
    ran = before is not None and before.phase in STOPPABLE and after.restarts > before.restarts
    return ran and (after.phase is not Phase.PENDING or took_s <= (_PAUSED_S if is_paused else _RUNNING_S))


def ended_first(job_id: str, more: str = "") -> Failure:
    """Return the failure of a job that had ended when Slurm requeued it; `more` is added to its message."""
    return Failure(
        f"ended just before it was to be stopped; Slurm put it back into the queue, where it is held: `scancel {job_id}` "
        f"if its work is done, `scontrol release {job_id}` to run it again{more}",
        FailureReason.ENDED_FIRST,
    )
