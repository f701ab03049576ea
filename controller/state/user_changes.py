"""Changes that users make to the requests of their waiting jobs, while Slurm may show requests by Headway.

A job that has been placed shows the nodes that Headway chose, and perhaps its GPUs in another form. Slurm lets its user change it
all the same. Such a change has to reach the job's own request in the ledger, or the next placement would write the old numbers over
it. A change by Headway must never count as one by the user, so there are only three sources:

- Headway's last pin. Where the job shows the nodes of that pin, any other number of GPUs or of nodes is the user's. Other excluded
  nodes are the user's too, because a pin excludes none. Tasks and CPUs count only with another number of nodes: Slurm computes
  some of them for a job that it considers for a start.
- A request that has been restored, and that the ledger keeps: Slurm does not show all of it, or has not answered. In the user's
  form, and without nodes, Headway itself writes another number of GPUs only for a job that it has resized.
- Two readings of a waiting job between which Headway has ordered nothing. Slurm itself changes no number of GPUs of a waiting job,
  and shows the same tasks, memory and excluded nodes of a held one.

A node list never counts as the user's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.slurm.model.job import Phase, ResourceRequest, SlurmJob
from controller.state.ledger import Ledger, PinRecord

_OTHERS = ("num_tasks", "memory_mib_per_node", "memory_mib_per_cpu", "excluded_nodes")
"""Fields beside the GPUs that a user may have changed, and that Slurm shows of a held job as they are."""
_WITH_NODES = ("min_nodes", "max_nodes", "num_cpus")
"""Fields that count only with another number of nodes: without its estimates, after a restart, Slurm shows other ones by itself."""


def note_change_after_pin(job: SlurmJob, ledger: Ledger) -> bool:
    """Keep the change that the user of a job has made between its pin and its start. Returns whether there was one."""
    original, pin = ledger.originals.get(job.key), ledger.pins.get(job.key)
    if original is None or pin is None or job.restarts != pin.restarts:
        return False
    if job.phase is not Phase.PENDING:
        unknown = not job.phase.occupies_nodes or _is_resized(job, ledger)
        started = original if unknown else _with_nodes_of_run(job, pin, original)
        return started != original and _keep(job, started, ledger)
    excluded = set(job.request.excluded_nodes) != set(original.excluded_nodes)
    if excluded:
        original = replace(original, excluded_nodes=job.request.excluded_nodes)
        ledger.originals[job.key] = original
    if job.held and _is_resized(job, ledger):
        return excluded  # it may show a pin in another size still, if the newest one was saved and never sent
    newest = _with_nodes_after_pin(job, pin, _after_pin(job.request, pin, original) or original)
    return excluded if newest == original else _keep(job, newest, ledger)


def shows_other_nodes(job: SlurmJob, pin: PinRecord) -> bool:
    """Return whether a job that was released on the nodes of this pin shows a number of nodes with which it may not start there.

    Slurm has shown the number of the pin before the release, so the other one is its user's.
    """
    shown, count = job.request, len(pin.nodes)
    if not _may_take_other_nodes(shown, pin):
        return False
    # A job that has run shows no maximum: Slurm itself says whether it may start on so many.
    return shown.min_nodes > count or 0 < shown.max_nodes < count or (job.is_impossible and shown.min_nodes < count)


def note_change_of_restored(job: SlurmJob, ledger: Ledger) -> bool:
    """Keep the number of GPUs that the user of a pending job without a pin has set. Returns whether there was one."""
    original, pin, shown = ledger.originals.get(job.key), ledger.pins.get(job.key), job.request
    if original is None or (pin is not None and pin.restarts == job.restarts):
        return False
    if job.phase is not Phase.PENDING or _is_resized(job, ledger):
        return False
    if set(shown.required_nodes) != set(original.required_nodes) or _form(shown) != _form(original):
        return False
    if original.gpus_per_task or original.gpus_fixed:
        return False
    newest = _with_gpus(original, shown)
    return newest != original and _keep(job, newest, ledger)


def note_change_since(last: SlurmJob, job: SlurmJob, ledger: Ledger) -> bool:
    """Keep the change of a pending job that its user has made between two readings. Returns whether there was one.

    Only for readings between which Headway has not changed the request.
    """
    original = ledger.originals.get(job.key)
    if original is None or not may_show_a_change(last, job):
        return False
    newest = _since(last, job, original)
    return newest != original and _keep(job, newest, ledger)


def may_show_a_change(last: SlurmJob, job: SlurmJob) -> bool:
    """Return whether two readings of a job may show a change by its user: they differ, and the job waits in both."""
    if last.request == job.request or last.restarts != job.restarts:
        return False
    if set(last.request.required_nodes) != set(job.request.required_nodes):
        return False
    return all(one.phase is Phase.PENDING and not one.is_impossible for one in (last, job))


def counts_differently(last: SlurmJob, job: SlurmJob, ledger: Ledger) -> bool:
    """Return whether the user of a held job has changed something by which Slurm may refuse it, between two readings.

    Only for readings between which Headway has not changed the request. Changes of requests that the ledger keeps are left to the
    functions above.
    """
    if not (last.held and job.held) or last.restarts != job.restarts:
        return False
    if _counted(last) != _counted(job):
        return True
    if job.key in ledger.originals or not may_show_a_change(last, job):
        return False
    return _since(last, job, last.request) != last.request


def _counted(job: SlurmJob) -> tuple[object, ...]:
    """Return what limits count and nodes must have, beside the request, and what Headway never changes. Slurm itself changes the
    order of several partitions."""
    of_limits = (job.account, job.qos, frozenset(job.partition.split(",")), job.time_limit_s, job.licenses)
    return (*of_limits, job.features, job.reservation)


def request_of_a_changed_job(job: SlurmJob, pin: PinRecord, original: ResourceRequest) -> ResourceRequest | None:
    """Return the user's request for a job of another form that was requeued since this pin of its id; None if it is another job.

    A job on exactly the nodes of the pin has these from Headway, whatever its user has changed since. Should it be a new job with
    the same id after all, it loses its node list.
    """
    if job.phase is Phase.ENDED or job.restarts <= pin.restarts or set(job.request.required_nodes) != set(pin.nodes):
        return None
    newest = _after_pin(job.request, pin, original)
    if newest is not None:
        return newest
    shown = replace(job.request, required_nodes=original.required_nodes)
    return _consistent(shown if shown.gpus_per_node else replace(shown, max_nodes=original.max_nodes))


def request_changed_while_it_ended(job: SlurmJob, last: SlurmJob, original: ResourceRequest) -> ResourceRequest | None:
    """Return the user's request for a job whose user changed its GPUs while its processes ended; None if it may be another job.

    `last`: a reading in which the requeue counts already, and the job still occupies its nodes. The job has the same nodes from
    Headway; its pin is no longer known, because that was for the run before.
    """
    nodes = set(last.request.required_nodes)
    if job.user != last.user or job.restarts != last.restarts or not last.phase.occupies_nodes:
        return None
    if not nodes or set(job.request.required_nodes) != nodes or _gpus(job.request) == _gpus(last.request):
        return None
    return _with_gpus(original, job.request)


def _after_pin(shown: ResourceRequest, pin: PinRecord, original: ResourceRequest) -> ResourceRequest | None:
    """Return the user's request, if the job is on the nodes of this pin, and shows GPUs that Headway has not written."""
    if set(shown.required_nodes) != set(pin.nodes) or original.gpus_fixed or any(pin.gpu_masks):
        return None
    if not shown.has_gpus or shown.gpus_per_task or original.gpus_per_task:
        return None
    even = len(set(pin.gpus)) == 1
    by_node = {None, original.gpus_per_node} | ({pin.gpus[0]} if even else set())
    in_all = {None, original.gpus_per_job, sum(pin.gpus)}
    if shown.gpus_per_node in by_node and shown.gpus_per_job in in_all:
        return None
    return _with_gpus(original, shown)


def _with_nodes_after_pin(job: SlurmJob, pin: PinRecord, original: ResourceRequest) -> ResourceRequest:
    """Return the request with the number of nodes that the user of a job on the nodes of this pin has set; unchanged if none.

    A job is released only when it shows the number of the pin. A held one may show its own request in part.
    """
    shown, count = job.request, len(pin.nodes)
    written = {count, original.min_nodes} if job.held and not job.is_impossible else {count}
    if shown.min_nodes in written or not _may_take_other_nodes(shown, pin):
        return original
    # Slurm raises the tasks to the number of nodes, and so does a pin.
    own, tasks = original.num_tasks, max(shown.num_tasks, shown.min_nodes)
    if tasks in {max(own, count), max(own, shown.min_nodes)}:
        tasks = own
    return _on_nodes(replace(original, num_tasks=tasks), original, shown.min_nodes, shown.max_nodes)


def _with_nodes_of_run(job: SlurmJob, pin: PinRecord, original: ResourceRequest) -> ResourceRequest:
    """Return the request with the number of nodes of a job that Slurm has started on more nodes than those of this pin."""
    count = len(job.allocated)
    if count <= len(pin.nodes) or not _may_take_other_nodes(job.request, pin):
        return original
    return original if count == original.min_nodes else _on_nodes(original, original, count, 0)


def _on_nodes(wanted: ResourceRequest, original: ResourceRequest, least: int, most: int) -> ResourceRequest:
    """Return the request for at least so many nodes, with tasks and CPUs for them; `most` 0: Slurm shows no maximum."""
    is_exact = original.max_nodes == original.min_nodes
    tasks = max(wanted.num_tasks, least)
    # The CPUs that a released job shows may be Slurm's estimate.
    cpus = max(original.num_cpus * tasks // max(original.num_tasks, 1), least)
    most = most or (least if is_exact else original.max_nodes)
    return _consistent(replace(wanted, min_nodes=least, max_nodes=most, num_tasks=tasks, num_cpus=cpus))


def _may_take_other_nodes(shown: ResourceRequest, pin: PinRecord) -> bool:
    """Return whether the job shows the nodes of this pin, and is not bound to GPUs by index: then it keeps its number of nodes."""
    return set(shown.required_nodes) == set(pin.nodes) and not shown.gpus_fixed and not any(pin.gpu_masks)


def _since(last: SlurmJob, job: SlurmJob, original: ResourceRequest) -> ResourceRequest:
    """Return the user's request with the changes between two readings."""
    then, now = last.request, job.request
    others: dict[str, Any] = {}
    if last.held and job.held:  # Slurm computes some numbers of a job that it considers for a start
        # The least number of the user's own request, or of the nodes that Headway chose, is not a change.
        other_nodes = now.min_nodes not in {then.min_nodes, original.min_nodes, len(now.required_nodes)}
        names = _OTHERS + _WITH_NODES if other_nodes else _OTHERS
        others = {name: getattr(now, name) for name in names if getattr(then, name) != getattr(now, name)}
    changed = _gpus(then) != _gpus(now)
    if not (changed or others):
        return original
    return _consistent(replace(_with_gpus(original, now) if changed else original, **others))


def _with_gpus(original: ResourceRequest, shown: ResourceRequest) -> ResourceRequest:
    """Return the request with the GPUs that the job shows: in the user's form, or else as the user sees it in Slurm."""
    if original.gpus_per_job and shown.gpus_per_job:
        return with_possible_nodes(replace(original, gpus_per_job=shown.gpus_per_job, gpu_type=shown.gpu_type))
    if original.gpus_per_node and shown.gpus_per_node and not shown.gpus_per_job:
        return replace(original, gpus_per_node=shown.gpus_per_node, gpu_type=shown.gpu_type)
    return _consistent(replace(shown, required_nodes=original.required_nodes))


def with_possible_nodes(request: ResourceRequest) -> ResourceRequest:
    """Return the request with no more nodes than it has GPUs in all, if it gives these.

    Slurm refuses a job with fewer GPUs than nodes ("--gpus < -N", 22.05). So these nodes are not the user's, but those of a
    placement: the user's own request was lost with a journal.
    """
    gpus = request.gpus_per_job
    if not gpus or request.min_nodes <= gpus:
        return request
    return replace(request, min_nodes=gpus, max_nodes=gpus)


def _form(request: ResourceRequest) -> tuple[bool, ...]:
    """Return how the GPUs of a request are counted."""
    counts = (request.gpus_per_node, request.gpus_per_job, request.gpus_per_task)
    return (*map(bool, counts), request.gpus_fixed)


def _is_resized(job: SlurmJob, ledger: Ledger) -> bool:
    constraint = ledger.relocations.get(job.key)
    return constraint is not None and constraint.gpus is not None


def _keep(job: SlurmJob, newest: ResourceRequest, ledger: Ledger) -> bool:
    """Make this the job's own request. A job in another size stays in the size that its user has seen and changed."""
    constraint = ledger.relocations.get(job.key)
    if constraint is not None and constraint.gpus is not None:
        newest = _seen(job.request, ledger.originals[job.key])
        del ledger.relocations[job.key]
        ledger.set_constraint(job.key, replace(constraint, gpus=None))
    ledger.originals[job.key] = newest
    return True


def _seen(shown: ResourceRequest, original: ResourceRequest) -> ResourceRequest:
    """Return the user's request for a job in another size, as its user sees it in Slurm.

    Its number of nodes is Headway's where it is that of the node list; if the user has left it open, it stays open.
    """
    seen = replace(shown, required_nodes=original.required_nodes)
    is_open = bool(original.gpus_per_job and shown.gpus_per_job) and original.max_nodes != original.min_nodes
    if (
        not is_open
        or set(shown.required_nodes) == set(original.required_nodes)
        or len(shown.required_nodes) != shown.min_nodes
    ):
        return seen
    least = min(original.min_nodes, shown.gpus_per_job or 1)
    is_raised = shown.num_tasks == max(original.num_tasks, shown.min_nodes)  # Slurm has a task on each node
    tasks, cpus = (original.num_tasks, original.num_cpus) if is_raised else (shown.num_tasks, shown.num_cpus)
    return _consistent(replace(seen, min_nodes=least, max_nodes=original.max_nodes, num_tasks=tasks, num_cpus=cpus))


def _gpus(request: ResourceRequest) -> tuple[object, ...]:
    return (request.gpus_per_node, request.gpus_per_job, request.gpu_type)


def _consistent(request: ResourceRequest) -> ResourceRequest:
    """Return the request with a maximum of nodes that is not below the minimum."""
    return request if not request.max_nodes else replace(request, max_nodes=max(request.max_nodes, request.min_nodes))
