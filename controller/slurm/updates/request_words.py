"""Words of updates for nodes, tasks, CPUs, memory and GPUs of a job. Pure.

What Slurm does with them, measured on 22.05 and on newer releases where these differ:

- Newer releases (seen on 24.11.5 and 25.11.7) do not raise a number of tasks that the user gave: a job on more nodes than tasks
  waits for ever, so it gets as many tasks as nodes; then `NumCPUs` of the same update has no effect.
- Newer releases (24.11.5, 26.05.5) set the tasks to the product of `TasksPerNode` and the nodes, again when the job starts: the
  number must divide the tasks. They take it back (`TasksPerNode=0`) only from a job that may run on one node, and refuse it
  otherwise, after they have changed the CPUs. They raise `MinCPUsNode` with it, never lower it, and raise the job's CPUs to its
  product with the nodes; so it is sent too.
- 26.05 lowers the tasks of a job of --gpus with --ntasks-per-gpu with each `NumNodes`, to the product of these and the nodes, and
  the CPUs with them. `NumTasks` in a later update brings both back.
- Newer releases start a job of --gpus-per-node with `NumNodes=1-500000` on every free node (24.11.5), so it gets its least number
  as the maximum.
- A job in another size gets its tasks and CPUs after its nodes, in an update of their own: with `NumNodes` Slurm would calculate
  them itself. More tasks without `NumCPUs` start on too few CPUs. `CPUsPerTask` needs `MinCPUsNode` beside it, or the job is
  given as many CPUs on a node as before; SLURM_CPUS_PER_TASK of its next run follows.
- `TresPerJob=` with nothing takes --gpus away, and --gpus-per-node must name the type again if the user gave one. A request
  that mixes several types, or GPUs with other generic resources, is never rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.slurm.client import Pin
from controller.slurm.model.job import ResourceRequest
from controller.slurm.records import MANY_NODES, NEWER_GRES
from controller.slurm.updates.found import Found


@dataclass(frozen=True, slots=True)
class _GpuCounts:
    gpus_per_job: int | None
    gpus_per_node: int | None
    gpu_type: str


def wanted_gpus(pin: Pin) -> _GpuCounts | ResourceRequest:
    """Return the GPUs to request: a total that divides evenly among several nodes becomes a number for each node."""
    if pin.original.gpus_per_job and pin.gpus_per_node is not None and len(pin.nodes) > 1:
        return _GpuCounts(None, pin.gpus_per_node, pin.original.gpu_type)
    return pin.original


def gpu_words(found: Found, wanted: _GpuCounts | ResourceRequest) -> list[str]:
    """Return the words that change the request for GPUs. --gpus-per-task is never changed: it could not be restored."""
    request, prefix = found.job.request, found.record.gres_prefix
    words = []
    if request.gpus_per_job != wanted.gpus_per_job:
        words.append(f"TresPerJob={_gres(prefix, wanted.gpus_per_job, wanted.gpu_type)}")
    if request.gpus_per_node != wanted.gpus_per_node:
        words.append(f"TresPerNode={_gres(prefix, wanted.gpus_per_node, wanted.gpu_type)}")
    return words


def wanted_tasks_per_node(found: Found, pin: Pin) -> int | None:
    """Return the tasks for each node to request: without a number, Slurm would put 3 and 1 of 4 tasks with GPUs on two nodes."""
    here, rest = divmod(pin.original.num_tasks, len(pin.nodes))
    if pin.original.gpus_per_task and pin.gpus_per_node is not None:
        if len(pin.nodes) == 1:
            return None  # all tasks on one node need no number
        # Nor does one task on each node, and newer releases take a number back only by a detour.
        needs_none = here == 1 and found.job.request.tasks_per_node is None and _is_newer(found)
        return None if needs_none else here
    return here if pin.resized and here > 1 and not rest else pin.original.tasks_per_node


def enough_tasks(request: ResourceRequest, original: ResourceRequest, nodes: int) -> list[str]:
    """Return the words for one task on each node, with the CPUs of a task.

    Newer releases keep a number of tasks that the user gave, and then the job would never start on more nodes. The CPUs follow
    in an update of their own, because NumTasks lowers them.
    """
    if request.num_tasks < nodes:
        return [f"NumTasks={nodes}"]
    cpus = nodes * (original.cpus_per_task or 1)
    return [f"NumCPUs={cpus}"] if request.num_cpus < cpus else []


def lost_tasks(found: Found, original: ResourceRequest, nodes: int) -> list[str]:
    """Return the word for the job's own number of tasks, where Slurm has lowered it with the nodes; empty if it has not.

    Newer releases calculate the tasks of --ntasks-per-gpu anew with each `NumNodes`, as so many for each node. `NumTasks` in an
    update of its own raises the CPUs, too.
    """
    tasks = found.job.request.num_tasks
    return [f"NumTasks={original.num_tasks}"] if _is_newer(found) and nodes <= tasks < original.num_tasks else []


def task_words(found: Found, tasks_per_node: int | None, original: ResourceRequest) -> list[str]:
    """Return the words for a number of tasks on each node (None: no such number), with the CPUs that a node needs for them."""
    if found.job.request.tasks_per_node == tasks_per_node:
        return []
    words = [f"TasksPerNode={tasks_per_node or 0}"]
    if _is_newer(found):
        words += _least_cpus_words(found, tasks_per_node or 1)
    elif tasks_per_node and original.tasks_per_node and original.cpus_per_task:
        words.append(f"MinCPUsNode={tasks_per_node * original.cpus_per_task}")
    return words


def tasks_per_node_taken_back(found: Found, wanted: int | None, original: ResourceRequest) -> list[str]:
    """Return the words of an update that takes a number of tasks on a node back; empty when there is none to take back.

    Newer releases do so only while the job may run on one node. Nodes and CPUs follow in updates of their own.
    """
    if wanted is not None or found.job.request.tasks_per_node is None or not _is_newer(found):
        return []
    return [f"NumNodes=1-{MANY_NODES}", *task_words(found, None, original), "ReqNodeList="]


def _least_cpus_words(found: Found, tasks_per_node: int) -> list[str]:
    """Return the word for the least CPUs of a node that so many tasks need; a larger number, which the user gave, stays."""
    request = found.job.request
    each = request.cpus_per_task or 1
    derived = (request.tasks_per_node or 1) * each
    return [f"MinCPUsNode={tasks_per_node * each}"] if found.record.min_cpus_node in {None, derived} else []


def _is_newer(found: Found) -> bool:
    """Return whether this is one of the releases that this module calls newer."""
    return found.record.gres_prefix == NEWER_GRES


def size_words(request: ResourceRequest, wanted: ResourceRequest, nodes: int) -> list[str]:
    """Return the words for tasks, CPUs and memory of a job in another size on so many nodes."""
    tasks = max(wanted.num_tasks, nodes)
    words = [] if request.num_tasks == tasks else [f"NumTasks={tasks}"]
    each = wanted.cpus_per_task
    # With more tasks than the user requested, each has a node of its own, and the CPUs of one task.
    cpus = wanted.num_cpus if each is None or tasks == wanted.num_tasks else tasks * each
    if request.num_cpus != max(cpus, nodes):
        words.append(f"NumCPUs={max(cpus, nodes)}")
    return words + share_words(request, wanted)


def share_words(request: ResourceRequest, wanted: ResourceRequest) -> list[str]:
    """Return the words for the CPUs of a task and the memory of a node."""
    words = []
    each = wanted.cpus_per_task
    if each is not None and request.cpus_per_task is not None and request.cpus_per_task != each:
        words += [f"CPUsPerTask={each}", f"MinCPUsNode={each * (wanted.tasks_per_node or 1)}"]
    memory_mib = wanted.memory_mib_per_node
    if memory_mib is not None and request.memory_mib_per_node not in {None, memory_mib}:
        words.append(f"MinMemoryNode={memory_mib}")
    return words


def _gres(prefix: str, count: int | None, gpu_type: str) -> str:
    if not count:
        return ""
    return f"{prefix}gpu:{gpu_type}:{count}" if gpu_type else f"{prefix}gpu:{count}"


def node_count_is_bound(found: Found, count: int) -> bool:
    """Return whether Slurm would start the job on exactly so many nodes."""
    request = found.job.request
    if request.min_nodes != count:
        return False
    if not found.record.shows_node_bound:
        return found.updated
    if request.max_nodes == count:
        return True
    # Without an upper bound Slurm takes the least number, unless GPUs or tasks make it look for more.
    return request.max_nodes == 0 and request.gpus_per_node is not None and request.num_tasks <= count


def same_range(found: Found, original: ResourceRequest) -> bool:
    """Return whether the job asks for the range of nodes of its user's own request."""
    request = found.job.request
    if request.min_nodes != original.min_nodes:
        return False
    return request.max_nodes == most_nodes(found, original) if found.record.shows_node_bound else found.updated


def most_nodes(found: Found, original: ResourceRequest) -> int:
    """Return the maximum of nodes to give back; 0: none.

    With a high maximum newer releases start a job of --gpus-per-node on all free nodes, where without one they would take the
    least number.
    """
    least_suffices = original.gpus_per_node is not None and original.num_tasks <= original.min_nodes
    takes_all = _is_newer(found) and least_suffices
    return original.max_nodes or (original.min_nodes if takes_all else 0)
