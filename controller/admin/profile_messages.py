"""Messages of the Admin service from the store of profiles. Pure functions, except for reading the store.

All functions but `now` and `name_users` run in a thread beside the event loop, which is the only one that reads the store. So they
give users by their numbers: a name service that does not answer must not hold up that thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any

from controller.profiles.current import Contention, ContentionByRun
from controller.profiles.reader import Kind, ProfileReader
from controller.profiles.sightings import ProfileRow
from controller.profiles.windows import Neighbour, RunKey, Throughput
from policies.serving.runtime.name_service import user_names
from protos.headway.v1 import admin_pb2

if TYPE_CHECKING:  # the simulator comes with it
    from controller.profiles.fit_rows import FitRows

MOST = 1000
"""Maximum number of kinds, and of windows of a job, in one answer."""
_MOST_STEPS = 50
_RECENT_ALONE = 200
"""Number of the newest windows without neighbours whose median is the listed throughput."""
_ROWS_AT_ONCE = 2000
_TABLES = {
    "pairs": admin_pb2.PairRow,
    "locality": admin_pb2.LocalityRow,
    "steps": admin_pb2.StepRow,
    "scaling": admin_pb2.ScalingRow,
    "models": admin_pb2.ModelRow,
}

Running = Mapping[RunKey, admin_pb2.ContentionNow]


def now(job_id: str, found: Contention, beside: Sequence[str]) -> admin_pb2.ContentionNow:
    """Return the present speed of a job."""
    message = admin_pb2.ContentionNow(
        job_id=job_id,
        steps_per_s=found.window.steps_per_s,
        source=found.source,
        beside=beside,
        window_start_s=found.window.start_s,
    )
    if found.sensitivity is not None:
        ideal = found.sensitivity.ideal
        message.sensitivity, message.confidence = found.value, found.confidence
        message.alone_steps_per_s, message.samples = ideal.steps_per_s, ideal.samples
    return message


def profile_list(
    store: ProfileReader, known: ContentionByRun, running: Running, request: admin_pb2.ListProfilesRequest
) -> admin_pb2.ProfileList:
    """Return the measured kinds of jobs; `running` has the messages of the runs in `known`."""
    most = min(request.limit or MOST, MOST)
    until_s = request.until_s if request.HasField("until_s") else store.newest_s()
    kinds = store.kinds(most + 1, request.skip, until_s)
    message = admin_pb2.ProfileList(more=len(kinds) > most, until_s=until_s if kinds else None)
    for kind in kinds[:most]:
        entry = _kind(store, kind)
        entry.running.extend(
            running[run]
            for run, found in known.items()
            if run in running and (found.window.trained, found.window.shape) == (kind.trained, kind.shape)
        )
        message.kinds.append(entry)
    return message


def _kind(store: ProfileReader, kind: Kind) -> admin_pb2.ProfileKind:
    entry = admin_pb2.ProfileKind(
        uid=kind.trained.uid,
        script=kind.trained.script,
        signature=kind.trained.signature,
        gpus=kind.shape.gpus,
        nodes=kind.shape.nodes,
        windows=kind.windows,
        windows_alone=kind.alone,
        jobs=kind.jobs,
        last_s=kind.last_s,
        gpu_model=kind.shape.gpu_model,
        batch_size=kind.trained.batch_size,
    )
    rates = [rate for rates in store.alone(kind.trained, kind.shape, _RECENT_ALONE).values() for rate in rates]
    if rates:
        entry.alone_steps_per_s = median(rates)
    return entry


def measurements(
    store: ProfileReader, job_id: str, raw_id: int, limit: int, called: Callable[[int], str], window_s: float
) -> admin_pb2.JobMeasurements | None:
    """Return the measurements of one job; None when there are none. `called` gives the id that users know, by Slurm's number."""
    windows = store.throughputs_of(raw_id, min(limit or MOST, MOST))
    steps = store.profiles_of(raw_id, _MOST_STEPS)
    if not windows and not steps:
        return None
    trained = windows[0].trained if windows else steps[0].trained
    message = admin_pb2.JobMeasurements(
        job_id=job_id,
        uid=trained.uid,
        script=trained.script,
        signature=trained.signature,
        window_s=window_s,
        steps=[_step(row) for row in steps],
        windows=[_window(item, called) for item in windows],
    )
    sizes = [row.param_bytes for row in steps if row.param_bytes is not None]
    if sizes:
        message.param_bytes = sizes[0]
    return message


def _step(row: ProfileRow) -> admin_pb2.StepSplit:
    return admin_pb2.StepSplit(
        time_s=row.time_s,
        node=row.node,
        num_steps=row.steps,
        step_s=row.step_s,
        compute_s=row.compute_s,
        exposed_s=row.exposed_s,
        hidden_s=row.hidden_s,
        bytes=row.kinds,
        restart=row.run.restart,
        link_bytes=row.link_kinds or {},
    )


def _window(item: Throughput, called: Callable[[int], str]) -> admin_pb2.JobWindow:
    return admin_pb2.JobWindow(
        start_s=item.start_s,
        restart=item.run.restart,
        gpus=item.shape.gpus,
        nodes=item.nodes,
        steps=item.steps,
        steps_per_s=item.steps_per_s,
        idle_gpus=item.idle_gpus,
        beside=[_neighbour(other, called) for other in item.neighbours],
    )


def _neighbour(other: Neighbour, called: Callable[[int], str]) -> admin_pb2.WindowNeighbour:
    message = admin_pb2.WindowNeighbour(job_id=called(other.run.job_id))
    if other.trained is not None:
        message.script = other.trained.script
    if other.shape is not None:
        message.gpus, message.nodes = other.shape.gpus, other.shape.nodes
    if other.steps_per_s is not None:
        message.steps_per_s = other.steps_per_s
    return message


def without_neighbours(found: admin_pb2.JobMeasurements, *, ids: bool) -> admin_pb2.JobMeasurements:
    """Remove what other users' jobs do from the measurements of one job; `ids`: their ids may stay."""
    if not ids:
        found.now.ClearField("beside")
    for window in found.windows:
        beside = [admin_pb2.WindowNeighbour(job_id=other.job_id if ids else "") for other in window.beside]
        del window.beside[:]
        window.beside.extend(beside)
    return found


async def name_users(found: Iterable[admin_pb2.ProfileKind | admin_pb2.JobMeasurements]) -> None:
    """Give messages the names of their users. The name of a user that is not known in time stays empty."""
    messages = list(found)
    names = await user_names(message.uid for message in messages)
    for message in messages:
        message.user = names[message.uid]


def slowdown_rows(found: FitRows) -> Iterator[admin_pb2.SlowdownRows]:
    """Yield the rows in pieces that fit into messages."""
    for name, kind in _TABLES.items():
        rows = iter(getattr(found, name))
        while piece := list(islice(rows, _ROWS_AT_ONCE)):
            message = admin_pb2.SlowdownRows()
            getattr(message, name).extend(kind(**_values(row)) for row in piece)
            yield message


def _values(row: Any) -> dict[str, Any]:
    return {item.name: getattr(row, item.name) for item in fields(row)}
