"""Python client of the Headway controller: `Client`, and `AsyncClient` with the same methods. Imports nothing of Headway.

Syntax and library: Python 3.9.
"""

from headway_client.aio.client import AsyncClient
from headway_client.aio.event_stream import AsyncEventStream
from headway_client.answers.jobs import DecisionRecord, Event, Explanation, Queue, QueueEntry, StartEstimate
from headway_client.answers.preemptions import PreemptionList, PreemptionRecord
from headway_client.answers.profiles import (
    ContentionNow,
    JobMeasurements,
    JobWindow,
    ProfileKind,
    ProfileList,
    RequestedProfile,
    StepSplit,
    WindowNeighbour,
)
from headway_client.answers.reports import JobSummary, ReportedNeighbour, ReportedRun, ReportedStop, ReportedWait
from headway_client.answers.slowdown_rows import LocalityRow, ModelRow, PairRow, ScalingRow, SlowdownRows, StepRow
from headway_client.answers.snapshot import Snapshot
from headway_client.answers.status import (
    AgentsStatus,
    LeftOut,
    MoveAdvice,
    NodeUse,
    PolicyInfo,
    PolicyLearning,
    SilentNode,
    SkewedNode,
    SlurmCalls,
    Status,
)
from headway_client.answers.usage import SizeWaits, Usage, UserUsage
from headway_client.errors import (
    AnswerTimeoutError,
    AnswerTooLargeError,
    BusyError,
    ClosedError,
    ControllerError,
    HeadwayError,
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotReadyError,
    ProtocolError,
    RefusedError,
    UnavailableError,
    VersionError,
    WaitTimeoutError,
)
from headway_client.sync.client import Client
from headway_client.sync.event_stream import EventStream
from headway_client.words import (
    EventKind,
    JobState,
    PreemptionCause,
    PreemptionEndReason,
    PreemptionStage,
    PreemptionWay,
    Reason,
    SpeedSource,
)

__version__ = "0.1.0"

__all__ = [
    "AgentsStatus",
    "AnswerTimeoutError",
    "AnswerTooLargeError",
    "AsyncClient",
    "AsyncEventStream",
    "BusyError",
    "Client",
    "ClosedError",
    "ContentionNow",
    "ControllerError",
    "DecisionRecord",
    "Event",
    "EventKind",
    "EventStream",
    "Explanation",
    "HeadwayError",
    "InvalidRequestError",
    "JobMeasurements",
    "JobState",
    "JobSummary",
    "JobWindow",
    "LeftOut",
    "LocalityRow",
    "ModelRow",
    "MoveAdvice",
    "NodeUse",
    "NotFoundError",
    "NotPermittedError",
    "NotReadyError",
    "PairRow",
    "PolicyInfo",
    "PolicyLearning",
    "PreemptionCause",
    "PreemptionEndReason",
    "PreemptionList",
    "PreemptionRecord",
    "PreemptionStage",
    "PreemptionWay",
    "ProfileKind",
    "ProfileList",
    "ProtocolError",
    "Queue",
    "QueueEntry",
    "Reason",
    "RefusedError",
    "ReportedNeighbour",
    "ReportedRun",
    "ReportedStop",
    "ReportedWait",
    "RequestedProfile",
    "ScalingRow",
    "SilentNode",
    "SizeWaits",
    "SkewedNode",
    "SlowdownRows",
    "SlurmCalls",
    "Snapshot",
    "SpeedSource",
    "StartEstimate",
    "Status",
    "StepRow",
    "StepSplit",
    "UnavailableError",
    "Usage",
    "UserUsage",
    "VersionError",
    "WaitTimeoutError",
    "WindowNeighbour",
]
