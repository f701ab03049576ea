"""A job of which one value leads to an error of Headway's own, from its n-th use on: a defect that no test knows yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.slurm.model.job import ResourceRequest, SlurmJob

_SILENT = (
    "__class__",
    "__repr__",
    "__str__",
    "__format__",
    "__hash__",
    "__reduce_ex__",
    "__getstate__",
    "__dict__",
    "__len__",
    "__bool__",
)


class Uses:
    """Uses of the poisoned value. `harmless`: number of them that do not fail."""

    def __init__(self, harmless: int) -> None:
        self.harmless = harmless
        self.count = 0

    def note(self) -> None:
        """Fail, unless this use is one of the first."""
        self.count += 1
        if self.count > self.harmless:
            raise ArithmeticError("a value that no code expected")


def poisoned(job: SlurmJob, field: str, uses: Uses) -> SlurmJob:
    """Return the job with a value of the same kind in this field that fails when it is used."""
    value = getattr(job, field)
    if isinstance(value, ResourceRequest):
        bad: Any = _request(value, uses)
    elif value is None:
        bad = None
    else:
        bad = _like(value, uses)
    return replace(job, **{field: bad})


def _request(request: ResourceRequest, uses: Uses) -> ResourceRequest:
    class Bad(ResourceRequest):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("__"):
                uses.note()
            return super().__getattribute__(name)

    own = {name: getattr(request, name) for name in request.__dataclass_fields__}
    return Bad(**own)


def _like(value: Any, uses: Uses) -> Any:
    """Return a value that is equal to this one, and whose methods and operators count as uses."""

    def used(name: str) -> Any:
        original = getattr(type(value), name)

        def method(self: Any, *arguments: Any, **more: Any) -> Any:
            uses.note()
            return original(self, *arguments, **more)

        return method

    skipped = {
        "__new__",
        "__init__",
        "__getattribute__",
        "__setattr__",
        "__init_subclass__",
        "__subclasshook__",
        *_SILENT,
    }
    methods = {
        name: used(name) for name in dir(type(value)) if name not in skipped and callable(getattr(type(value), name))
    }
    methods["__hash__"] = type(value).__hash__
    if isinstance(value, str):
        methods["__eq__"] = str.__eq__  # it may be a key of a dictionary
        methods["__ne__"] = str.__ne__
    kind = type("Bad", (type(value),), methods)
    return kind(value)
