"""Recordings with torch's profiler, at little cost and without output.

torch.profiler records every operator. This makes the steps of a small model 40 to 60 % longer, and stopping it takes as long again.
Here only events of the scope USER_SCOPE are recorded, without the program's own (see left_out): collectives, each with the shapes
and types of its input, and waits for the DataLoader, about a dozen in each step. With a GPU, kernels are recorded, too.

libkineto writes lines to stderr when a recording begins and ends. Its log level is raised while a window is open. If that is not
possible, nothing is recorded.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from . import gloo_trace
from .comm_overlap import Collective, kind_on_cpu, kind_on_gpu
from .forked_child import children
from .group_notes import GroupNotes, Key, key_of
from .group_traffic import Layout
from .intervals import Interval
from .left_out import WAIT_FOR_DATA, LeftOut
from .whole_sizes import WholeSizes

_LEVEL_SYMBOL = "_ZN9libkineto6Logger14severityLevel_E"
_SILENT = 1_000
_CLOCK_NS = 1_000_000
"""Difference between two clocks from which on the machine's clock counts as set: its rate is adjusted by much less in a window."""
_FOR_EVER_NS = 1 << 62
_EVENTS_PER_PAUSE = 64
"""Events read between two pauses."""

_BYTES = {
    "double": 8, "long int": 8, "long": 8, "c10::complex<float>": 8, "c10::complex<double>": 16,
    "float": 4, "int": 4, "unsigned int": 4, "unsigned long": 8,
    "c10::Half": 2, "c10::BFloat16": 2, "short int": 2, "short": 2, "unsigned short": 2,
    "unsigned char": 1, "signed char": 1, "char": 1, "bool": 1,
}  # fmt: skip
"""Bytes of an element, by the profiler's name of its type. Types that are not listed have 8 bits."""


class _Moment:
    """A time by the machine's clock, which may be set, and by one that is never set."""

    def __init__(self) -> None:
        self.unix_ns = time.time_ns()
        self.ns = time.monotonic_ns()


class Kineto:
    """One recording. The same thread calls `start`, `pause` and `stop`, as the profiler belongs to a thread.

    `stop` is safe once the collectives of the recording have ended (see gloo_trace); `pause` begins no further ones.
    """

    def __init__(self) -> None:
        self._calls = sys.modules["torch._C"]._autograd
        self._set_recording = self._calls._enable_record_function
        self.sizes = WholeSizes()
        self.groups = GroupNotes()
        self._left_out = LeftOut(self._set_recording, self.sizes, self.groups)
        self._begun, self._paused = _Moment(), _Moment()
        scope = sys.modules["torch._C"]._profiler.RecordScope
        activity = sys.modules["torch._C"]._profiler.ProfilerActivity
        self._scopes = {scope.USER_SCOPE}
        self._activities = {activity.CPU}
        """Bound: CPU and CUDA."""
        if activity.CUDA in self._calls._supported_activities() and _cuda_is_used():
            self._activities.add(activity.CUDA)
        profile = sys.modules["torch.autograd.profiler"].profile
        self._config = profile(record_shapes=True, use_kineto=True).config()
        library = os.path.join(os.path.dirname(sys.modules["torch"].__file__ or ""), "lib", "libtorch_cpu.so")
        loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        self._level = ctypes.c_int.in_dll(loaded, _LEVEL_SYMBOL)
        self._level_before = self._level.value
        children.prepare()

    def start(self) -> None:
        """Begin to record events."""
        self._level_before = self._level.value
        self._level.value = _SILENT
        try:
            self._calls._prepare_profiler(self._config, self._activities)
            if self._level.value != _SILENT:  # its first use in a process sets its own initial level
                self._level_before = self._level.value
                self._level.value = _SILENT
            self._left_out.begin()
            self._begun = _Moment()
            self._calls._enable_profiler(self._config, self._activities, self._scopes)
        except BaseException:
            self._left_out.end()
            self._level.value = self._level_before
            raise

    def pause(self) -> None:
        """Record no events that begin from now on. What is in progress is still recorded to its end."""
        self._left_out.pause()
        self._set_recording(False)
        self._paused = _Moment()
        with suppress(Exception):  # the list of another version: groups are optional
            if not self._clock_was_set():
                self.groups.take_list(self._begun.unix_ns, self._paused.unix_ns)

    def in_progress(self) -> Optional[bool]:
        """Return True if collectives of the recording, which is paused, have not ended; None = torch cannot say."""
        if self._clock_was_set():
            return gloo_trace.in_progress(0, _FOR_EVER_NS)  # any collective may be one of the recording
        return gloo_trace.in_progress(self._begun.unix_ns, self._paused.unix_ns)

    def _clock_was_set(self) -> bool:
        begun, paused = self._begun, self._paused
        return abs((paused.unix_ns - begun.unix_ns) - (paused.ns - begun.ns)) > _CLOCK_NS

    def in_backward(self) -> bool:
        """Return True within a hook of backward, at whose end torch takes a profiler that was started or stopped there back.

        Programs call an optimizer there to free each gradient at once. Versions that cannot say it: False.
        """
        task = getattr(sys.modules["torch._C"], "_current_graph_task_id", None)
        return task is not None and task() >= 0

    def lose(self) -> None:
        """Give the recording up without an end, in any thread. Its own thread has to call `pause`, so that it does not grow."""
        self._left_out.end()
        self._level.value = self._level_before

    def stop(self) -> Any:
        """End the recording and return it."""
        try:
            return self._calls._disable_profiler()
        finally:
            self._left_out.end()
            self._set_recording(True)
            self._level.value = self._level_before


class NoProfiler:
    """A recording without events."""

    sizes: Optional[WholeSizes] = None
    groups: Optional[GroupNotes] = None

    def start(self) -> None:
        """Do nothing."""

    def pause(self) -> None:
        """Do nothing."""

    def in_progress(self) -> Optional[bool]:
        """Return False."""
        return False

    def in_backward(self) -> bool:
        """Return False: it may begin and end anywhere."""
        return False

    def lose(self) -> None:
        """Do nothing."""

    def stop(self) -> NoProfiler:
        """Return the empty recording."""
        return self

    def events(self) -> Tuple[()]:
        """Return no events."""
        return ()


def recorder(communicates: bool) -> Union[Kineto, NoProfiler]:
    """Return the recorder that a window needs. Without collectives and without a GPU, the times of the steps are enough."""
    return Kineto() if communicates or _cuda_is_used() else NoProfiler()


def in_use() -> bool:
    """Return True if a profiler runs in this thread, or a CUDA graph of it is being captured."""
    if sys.modules["torch._C"]._autograd._profiler_enabled():
        return True
    return _cuda_is_used() and bool(sys.modules["torch.cuda"].is_current_stream_capturing())


def _cuda_is_used() -> bool:
    cuda = sys.modules.get("torch.cuda")
    return bool(cuda is not None and cuda.is_initialized())


class ProfilerEvents:
    """The events of a recording, by kind. Bound: the events of one window."""

    def __init__(self) -> None:
        self.collectives: List[Collective] = []
        self.on_gpu: List[Collective] = []
        self.kernels: List[Interval] = []
        self.data_waits: List[Interval] = []


class Noted(NamedTuple):
    """Facts about the calls of a recording that its events do not have."""

    sizes: Optional[WholeSizes] = None
    """Noted during the recording."""
    groups: Optional[GroupNotes] = None
    """The same."""
    group_size: int = 1
    """Number of ranks of a group that is not known."""
    layout: Layout = Layout(1, 0, {})


class _Call(NamedTuple):
    """A collective as torch.distributed issued it."""

    name: str
    key: Key
    when: Interval
    bytes: int
    """Bytes of the recorded inputs."""


def read(recorded: Any, pause: Callable[[], bool], noted: Optional[Noted] = None) -> ProfilerEvents:
    """Read a recording, in the caller's thread. `pause` is called regularly; if it returns True, reading ends with EOFError.

    There may be tens of thousands of kernels, and the training thread needs the interpreter meanwhile.
    """
    found = ProfilerEvents()
    on_cpu: Set[str] = set()
    calls: List[_Call] = []
    device: List[Tuple[str, int, int]] = []
    cpu = sys.modules["torch._C"]._autograd.DeviceType.CPU
    for number, event in enumerate(recorded.events()):
        if number % _EVENTS_PER_PAUSE == 0 and pause():
            raise EOFError
        name = event.name()
        if event.device_type() != cpu:
            device.append((name, *_when(event)))
            continue
        if kind_on_cpu(name):
            calls.append(_Call(name, key_of(name, event.shapes()), _when(event), _input_bytes(event)))
        elif name.startswith(WAIT_FOR_DATA):
            found.data_waits.append(_when(event))
        on_cpu.add(name)
    found.collectives = _collectives(calls, Noted() if noted is None else noted, pause)
    for name, begin, end in device:
        kind = kind_on_gpu(name)
        if name in on_cpu:
            continue  # an annotation of the CPU, which the profiler repeats for the kernels that it launched
        if kind:
            found.on_gpu.append(Collective(kind, begin, end, 0))
        else:
            found.kernels.append((begin, end))
    return found


def _collectives(calls: List[_Call], noted: Noted, pause: Callable[[], bool]) -> List[Collective]:
    """Return the calls with the bytes of their whole tensors, and the share of them that passes the links between nodes."""
    calls = sorted(calls, key=lambda call: call.when)
    sizes = WholeSizes() if noted.sizes is None else noted.sizes
    names = {} if noted.groups is None else noted.groups.names(Counter(call.key for call in calls))
    in_order = {key: iter(groups) for key, groups in names.items()}
    found = []
    for number, call in enumerate(calls):
        if number % _EVENTS_PER_PAUSE == 0 and pause():
            raise EOFError
        _, kind, shapes = call.key
        group = next(in_order.get(call.key, iter(())), "")
        place = noted.layout.groups.get(group)
        factor = sizes.factor(call.name, shapes, noted.group_size, 0 if place is None else place.size)
        share = noted.layout.link_share(kind, group)
        found.append(Collective(kind, *call.when, round(call.bytes * factor), share))
    return found


def _when(event: Any) -> Interval:
    """Return begin and end in ns. torch >= 2.4 gives nanoseconds, older versions give microseconds."""
    if hasattr(event, "start_ns"):
        begin, length = int(event.start_ns()), int(event.duration_ns())
    else:
        begin, length = int(event.start_us()) * 1000, int(event.duration_us()) * 1000
    return begin, begin + length


def _input_bytes(event: Any) -> int:
    types: Sequence[str] = event.dtypes()
    bytes_of = 0
    for number, shape in enumerate(event.shapes()):
        elements = 1
        for size in shape:
            elements *= int(size)
        name = types[number] if number < len(types) else "float"
        bytes_of += elements * _BYTES.get(name, 1)
    return bytes_of
