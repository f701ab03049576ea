"""The policy interface, and the search for installed policies.

A policy is an object with a `spec` and a `decide`. Packages add theirs through the entry-point group
`headway.policies`: name → a callable that takes the policy's options as keywords and returns a `Policy`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from inspect import Parameter, formatannotation, signature
from typing import Any, Protocol, runtime_checkable

from policies.errors import PolicyLoadError
from policies.model import ClusterState, Placement
from policies.rule import rule_of, rule_text

ENTRY_POINT_GROUP = "headway.policies"
_OURS = "headway-scheduler"
"""Package whose policies keep their names, whatever else is installed."""
KNOWN_NEEDS = frozenset({"duration_estimate", "profile"})
_EXTRAS = {"safetensors": "policy", "torch": "train"}
"""Packages that learned policies need, and the extra that installs each."""
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
"""Types of options that are checked, in words."""
_OPTIONAL = frozenset({"None", "NoneType", "Optional", "Union", "typing"})
"""Names in annotations of options that may be one of several types, or None."""
_NAMES = re.compile(r"\w+")
_DECIMAL = re.compile(r"[-+]?(0|[1-9]\d*)\.\d+", re.ASCII)
"""Numbers that are read as such wherever an option may be one: `.5`, `1e3` and `1_000.0` may be names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningStatus:
    """State of a policy's continued learning, for operators. Times are Unix times; 0 = never, or not known."""

    training: bool = False
    """True while an attempt to make better weights is under way."""
    weights_sha256: str = ""
    """Digest of the weights in service."""
    weights_since_s: float = 0.0
    """Time at which they were promoted, or returned to by an undo; 0 for those that the policy began with."""
    history_jobs: int = 0
    history_bytes: int = 0
    outcomes_refused: int = 0
    """Outcomes that were not recorded since the start: no job can have ended so, or the disk was full."""
    feedback_samples: int = 0
    """Samples of live decisions with their rewards, from which it learns."""
    feedback_updates: int = 0
    """Gradient steps from them since the start, on a copy of the weights in service."""
    feedback_left_out: int = 0
    """Live decisions since the start without samples, because their reward is not known."""
    attempts: int = 0
    promotions: int = 0
    last_attempt_s: float = 0.0
    last_result: str = ""
    """promoted, not better, failed or stopped; empty before the first attempt."""
    last_reason: str = ""
    """Why it was not promoted."""
    change: float | None = None
    """Relative change of the average JCT in the last comparison; None: there was none."""
    ci95: float | None = None
    """Half of its 95 % interval."""
    problem: str = ""
    """Why nothing is recorded or learned at present; empty: there is no problem."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Properties and needs of a policy; the controller's `plan` enforces them."""

    name: str
    source: str
    """Paper or system that the policy follows."""
    version: str = "1"
    preempts: bool = False
    """May take GPUs from running jobs that are preemptible."""
    resizes: bool = False
    """May give a job another number of GPUs than it asked for."""
    exact_gpus: bool = False
    """Chooses GPUs, not only how many on which node: its placements may have `gpu_masks`. Where Slurm cannot be told which GPUs a
    job gets, the choice is advice that Slurm does not see; `headway why` says so."""
    round_s: float = 0.0
    """Longest time in seconds between two decisions; 0 = only when something happens."""
    needs: frozenset[str] = frozenset()
    """Data that the policy cannot work without: members of `KNOWN_NEEDS`."""
    considers: int = 0
    """Number of waiting jobs that the policy looks at, the first in order of submission; for each job that it starts, it may look
    at one more. 0 = all. A promise: without the waiting jobs behind these the decision is the same, so they are not sent to it."""
    ordered_by: str = field(default="", compare=False)
    """How the policy orders waiting jobs, in words that follow "orders", for users: "by time of submission". Empty: not stated; a
    policy with a `rule` need not state it. A text, so it is not compared."""
    learning: LearningStatus | None = field(default=None, compare=False)
    """State of its continued learning when it was described; None: it does not learn. No property, so it is not compared."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The whole allocation that a policy wants, by job row. A job that is left out waits, or is stopped."""

    allocation: Mapping[int, Placement]
    reasons: Mapping[int, str] = field(default_factory=dict)
    """A short reason for some of the jobs."""
    queue: tuple[int, ...] = ()
    """Waiting jobs in the order in which the policy considers them; may be empty."""
    guard: str = ""
    """Reason why a rule decided in a learned policy's place; empty if the policy itself decided."""
    outside: str = ""
    """How the state leaves the range that the policy's weights were trained on; empty if it does not, or if that is not known."""


@runtime_checkable
class Policy(Protocol):
    """Decides which job runs where. The same object serves a simulator, a trainer and a live cluster, and cannot tell which."""

    @property
    def spec(self) -> PolicySpec:
        """The properties and needs of the policy."""

    def decide(self, state: ClusterState) -> Decision:
        """Return the allocation wanted now. The same state gives the same decision, however often it is asked in a row.

        A policy whose decisions depend on earlier states too says so, and has `fork` (`Forkable`).
        """


def ordered_by(policy: Policy) -> str:
    """Return how the policy orders waiting jobs, in words that follow "orders"; empty if neither its spec nor a rule says so.

    Does not raise: these words are for users, and no decision depends on them.
    """
    try:
        words, rule = policy.spec.ordered_by, rule_of(policy)
        return str(words or ("" if rule is None else rule_text(rule)))
    except Exception:  # noqa: BLE001 - third-party code may raise anything
        return ""


@runtime_checkable
class Forkable(Protocol):
    """A policy that remembers earlier states."""

    def fork(self) -> Any:
        """Return an independent copy: what one of them sees from now on, the other does not know."""


@runtime_checkable
class WithFallback(Protocol):
    """A policy in whose place another one decides if its decision cannot be applied."""

    def decide_instead(self, state: ClusterState, problem: str) -> Decision | None:
        """Return the fallback's decision on the state of the last `decide`, and count it.

        `problem` says why the decision of that call cannot be applied. None: there is no fallback, or it has decided already.
        """


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one job. Times in seconds since the Unix epoch."""

    job_id: str
    user: str
    job_name: str
    submit_time_s: float
    start_time_s: float
    """Start of its last run."""
    finish_time_s: float
    num_gpus: int
    num_nodes: int
    service_s: float
    """Time spent running, all runs together."""
    final_state: str
    """COMPLETED, FAILED, TIMEOUT, CANCELLED, ... as Slurm says it."""


@runtime_checkable
class Learner(Protocol):
    """A policy that learns from how jobs ended. Called between decisions, never during one."""

    def learn(self, outcome: Outcome) -> None:
        """Learn from the outcome of one job."""


@runtime_checkable
class ContinuedLearner(Learner, Protocol):
    """A policy that works beside its decisions, while a server serves it. In simulators it only decides."""

    def begin(self) -> None:
        """Begin the work in the background. Called once, before the first decision. Does not raise."""

    def end(self) -> None:
        """End that work within a few seconds."""

    def learning(self) -> LearningStatus | None:
        """Return the state of its learning; None: it is switched off. Called from any thread."""


def policy_names() -> list[str]:
    """Return the names of all installed policies."""
    return sorted(set(_entry_points().names))


def _entry_points() -> EntryPoints:
    return _entry_points_on(tuple(sys.path))


@lru_cache(maxsize=8)
def _entry_points_on(path: tuple[str, ...]) -> EntryPoints:
    """Return the policies that are installed on that search path. Kept, because Python reads the metadata of every installed
    package each time: a policy that is installed while a program runs is found at its next start."""
    del path
    return entry_points(group=ENTRY_POINT_GROUP)


def _entry(name: str) -> EntryPoint | None:
    """Return the policy of that name; None: there is none. Headway's own goes before that of any other package.

    Raises PolicyLoadError if several other packages have one.
    """
    found = _by_package(name)
    if len(found) > 1 and _OURS not in found:
        packages = " and ".join(f"{package} ({entry.value})" for package, entry in sorted(found.items()))
        raise PolicyLoadError(
            f"several packages have a policy named {name!r}: {packages}; uninstall all but one, or have their authors rename it"
        )
    return found.get(_OURS) or next(iter(found.values()), None)


def _by_package(name: str) -> dict[str, EntryPoint]:
    """Return the policies of that name by the package that brings each."""
    found: dict[str, EntryPoint] = {}
    for entry in _entry_points().select(name=name):
        package = "an unknown package" if entry.dist is None else re.sub(r"[-_.]+", "-", entry.dist.name).lower()
        found.setdefault(package, entry)
    return found


def hidden_policies() -> list[tuple[str, str, str]]:
    """Return name, package and object of each policy that is not used, because one of Headway's own has its name."""
    found = {name: _by_package(name) for name in policy_names()}
    return [
        (name, package, entry.value)
        for name, entries in found.items()
        if _OURS in entries
        for package, entry in sorted(entries.items())
        if package != _OURS
    ]


def installed_policies() -> tuple[dict[str, PolicySpec], dict[str, str]]:
    """Return by name the specs of the installed policies with default options, and the errors of those that cannot be made."""
    specs: dict[str, PolicySpec] = {}
    broken: dict[str, str] = {}
    for name in policy_names():
        try:
            specs[name] = load_policy(name).spec
        except PolicyLoadError as error:
            broken[name] = str(error)
    return specs, broken


def parse_policy(text: str) -> tuple[str, dict[str, object]]:
    """Return the name and options in NAME or NAME:key=value,key=value. Numbers and true/false are read as such.

    An option whose parameter is annotated as a text stays as it is written, so that a folder 0042 is not the folder 42; so does,
    where the policy does not say that it takes a number, what Python would write in another way. Raises PolicyLoadError.
    """
    name, colon, rest = text.partition(":")
    written: dict[str, str] = {}
    for item in rest.split(",") if colon else ():
        key, equals, value = item.partition("=")
        if not equals or not key.isidentifier() or key in written:
            raise PolicyLoadError(
                f"{text!r}: {item!r} is not of the form key=value, or its key is given twice; write NAME:key=value,key=value"
            )
        written[key] = value
    types = _option_types(name) if written else {}
    return name, {key: _option_value(value, types.get(key, frozenset())) for key, value in written.items()}


def _option_types(name: str) -> dict[str, frozenset[str]]:
    """Return the names in the annotation of each option of that policy; empty if there is none, or it cannot be loaded."""
    try:
        entry = _entry(name)
        parameters = dict(signature(entry.load()).parameters) if entry is not None else {}
    except Exception:  # noqa: BLE001 - third-party code may raise anything; making the policy will say what is wrong
        return {}
    return {key: frozenset(_NAMES.findall(formatannotation(each.annotation))) for key, each in parameters.items()}


def _option_value(text: str, types: frozenset[str]) -> object:
    """Return the option as a number or truth value, if it is one; `types` are the names in its annotation."""
    numeric = bool(types & {"int", "float", "bool"})
    if types & {"str", "Path"} and not numeric:
        return text
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            value = kind(text)
            if numeric or (str(value) == text if kind is int else _DECIMAL.fullmatch(text)):
                return value
    return text


def option_names(name: str) -> frozenset[str]:
    """Return the options that the policy of that name takes; empty if there is no such policy. Raises PolicyLoadError."""
    entry = _entry(name)
    if entry is None:
        return frozenset()
    try:
        return frozenset(signature(entry.load()).parameters)
    except Exception as error:  # third-party code may raise anything; the caller gets one kind
        raise PolicyLoadError(f"policy {name!r} ({entry.value}) could not be loaded: {error}") from error


def _check_options(make: Callable[..., object], options: Mapping[str, object]) -> None:
    """Raise TypeError that lists the known options, where Python's own error would name only the wrong one."""
    try:
        parameters = signature(make).parameters
    except ValueError:  # written in C, and does not report its parameters
        return
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = [key for key in options if key not in parameters]
    if unknown:
        known = ", ".join(parameters)
        raise TypeError(f"it has no option {unknown[0]!r}; " + (f"it takes {known}" if known else "it takes none"))


def _check_kinds(types: Mapping[str, frozenset[str]], options: Mapping[str, object]) -> None:
    """Raise ValueError if an option is of another kind than its annotation: the text 'no' would be true.

    `types` are the names in each annotation; one that has others than those of simple types is not checked.
    """
    for key, value in options.items():
        kinds = types.get(key, frozenset()) - _OPTIONAL
        kind = type(value).__name__
        fits = kind in kinds or (kind == "int" and "float" in kinds)
        if kinds and kinds <= _KINDS.keys() and kind in _KINDS and not fits:
            wanted = [
                words for each, words in _KINDS.items() if each in kinds and not (each == "int" and "float" in kinds)
            ]
            raise ValueError(f"{key} is {value!r}; give {' or '.join(wanted)}")


def load_policy(name: str, options: Mapping[str, object] | None = None) -> Policy:
    """Make the policy of that name with those options.

    Raises PolicyLoadError if no policy has that name (the message lists those that exist) or several packages have one, if the
    policy cannot be imported, or if it does not take the options.
    """
    entry = _entry(name)
    if entry is None:
        raise PolicyLoadError(f"no policy is named {name!r}; installed: {', '.join(policy_names())}")
    try:
        make = entry.load()
        _check_options(make, options or {})
        if options and _OURS not in _by_package(name):  # Headway's own check theirs, and also name units and limits
            _check_kinds(_option_types(name), options)
        policy = make(**(options or {}))
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        mend = (
            f"pip install 'headway-scheduler[{_EXTRAS[module]}]'"
            if module in _EXTRAS
            else "install it into Headway's Python environment"
        )
        raise PolicyLoadError(
            f"policy {name!r} ({entry.value}) needs {module}, which is not installed; {mend}"
        ) from error
    except Exception as error:  # third-party code may raise anything; the caller gets one kind
        raise PolicyLoadError(f"policy {name!r} ({entry.value}) could not be made: {error}") from error
    if not isinstance(policy, Policy):
        raise PolicyLoadError(f"policy {name!r} ({entry.value}) has no `spec` and `decide`")
    return policy
