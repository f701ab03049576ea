"""Builds the agent and its stream to the controller from the settings, and runs it."""

from __future__ import annotations

import socket
from pathlib import Path

import structlog

from nodeagent.config import AgentSettings, load_settings
from nodeagent.daemon import NodeAgent, build_agent, stop_signals
from nodeagent.telemetry.driver_minors import DriverMinors
from nodeagent.telemetry.topology import NicDevices, read_topology
from nodeagent.uplink.controller_reporter import ControllerReporter
from nodeagent.uplink.endpoint import codec_for_all, parse_endpoint
from nodeagent.uplink.stream import StreamSettings
from nodeagent.wire.report import Topology
from policies.serving.runtime.logs import set_up_logging
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.version import VERSION

log = structlog.get_logger(__name__)


async def run_agent(path: Path) -> None:
    """Run until SIGTERM. Raises AgentError when the agent cannot start. It starts also while the controller is down."""
    settings = with_node_name(load_settings(path))
    set_up_logging(settings.log_level, settings.log_format)
    agent = build_agent(settings)
    reporter = controller_reporter(settings, agent)
    with stop_signals(agent):
        log.info("started", node=settings.node_name, controller=", ".join(settings.controller_address))
        await agent.run(reporter, Notifier())
    log.info("stopped")


def with_node_name(settings: AgentSettings) -> AgentSettings:
    """Fill in the name of this node if the file gives none: the host name up to its first dot, as slurmd does."""
    return settings.model_copy(update={"node_name": settings.node_name or socket.gethostname().partition(".")[0]})


def controller_reporter(settings: AgentSettings, agent: NodeAgent) -> ControllerReporter:
    """Build the reporter that sends to the controller. Raises AgentError."""
    endpoints = [parse_endpoint(address) for address in settings.controller_address]
    codec = codec_for_all(endpoints, settings.munge, settings.munge_socket)
    stream = StreamSettings(
        settings.controller_address, controller_uid=settings.controller_uid, ca_file=settings.ca_file
    )
    minors = DriverMinors()
    nics = NicDevices(settings.nics)

    async def refresh() -> None:
        await minors.refresh()
        await nics.refresh()

    def topology() -> Topology:
        return read_topology(nics=nics.known, minors=minors.known)

    return ControllerReporter(stream, settings.node_name, VERSION, topology, agent, codec, prepare=refresh)
