"""The exporter: one registry of all metrics, and an HTTP server that answers scrapes.

The exporter answers every caller that can reach it, so it listens on loopback; another address has to be written out in full.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from prometheus_client import CollectorRegistry

from controller.admin.metrics.agent_metrics import AgentMetrics
from controller.admin.metrics.controller_metrics import ControllerMetrics
from controller.admin.metrics.current_view import CurrentView
from controller.admin.metrics.families import LeftOutMetrics, Registry
from controller.admin.metrics.forecast_metrics import ForecastMetrics
from controller.admin.metrics.job_metrics import JobMetrics
from controller.admin.metrics.metered_client import MeteredClient
from controller.admin.metrics.notification_metrics import NotificationMetrics
from controller.admin.metrics.preemption_metrics import PreemptionMetrics
from controller.admin.metrics.server import MetricsServer
from controller.admin.metrics.standby_metrics import PartMetrics, standby_registry
from controller.admin.metrics.wait_metrics import WaitMetrics
from controller.base.errors import ConfigurationError
from controller.contention.measurement import Measurement
from controller.cycle.view.controller_view import ControllerView
from controller.forecast.estimate import no_starts
from controller.forecast.service import StartForecasts
from controller.notify.outbox import Receivers

log = structlog.get_logger(__name__)


def make_registry(
    controller: ControllerView,
    measurement: Measurement | None = None,
    receivers: Sequence[Receivers] = (),
    cluster: str | None = None,
    *,
    forecasts: StartForecasts | None = None,
) -> CollectorRegistry:
    """Return a registry with all metrics of that controller; it follows the controller's cycles from now on.

    `cluster` is the ClusterName of controllers that stand by for one another; None for the only one of a cluster.
    """
    registry = Registry()
    current = CurrentView(controller)
    metrics = ControllerMetrics(controller, registry, current)
    controller.listeners.append(metrics.on_cycle)
    controller.listeners.append(WaitMetrics(controller, registry).on_cycle)
    PreemptionMetrics(controller, registry)
    if measurement is not None:
        AgentMetrics(measurement, registry)
    if cluster is not None:
        registry.register(PartMetrics(cluster))
    if forecasts is not None:
        registry.register(ForecastMetrics(controller, forecasts))
    registry.register(JobMetrics(controller, current, no_starts if forecasts is None else forecasts.of))
    if receivers:
        registry.register(NotificationMetrics(receivers))
    if isinstance(controller.client, MeteredClient):
        registry.register(controller.client.latency)
        registry.register(controller.client.errors)
    registry.register(LeftOutMetrics())
    return registry


@contextmanager
def serve_metrics(
    controller: ControllerView,
    address: str,
    measurement: Measurement | None = None,
    receivers: Sequence[Receivers] = (),
    cluster: str | None = None,
    *,
    forecasts: StartForecasts | None = None,
) -> Iterator[int]:
    """Serve /metrics at host:port from a thread of its own, until the context ends; gives the port (0: not served).
    With an empty address nothing is served; port 0 stands for any free port. Raises ConfigurationError when listening fails.
    """
    if not address:
        yield 0
        return
    with _serve(address, make_registry(controller, measurement, receivers, cluster, forecasts=forecasts)) as port:
        yield port


@contextmanager
def serve_standby_metrics(address: str, cluster: str) -> Iterator[int]:
    """Serve what a controller exports while it stands by, in the same way."""
    if not address:
        yield 0
        return
    with _serve(address, standby_registry(cluster)) as port:
        yield port


@contextmanager
def _serve(address: str, registry: CollectorRegistry) -> Iterator[int]:
    host, port = parse_metrics_address(address)
    try:
        server = MetricsServer(host, port, registry)
    except OSError as error:
        raise ConfigurationError(
            f'metrics_address: cannot listen on {address}: {error.strerror or error}; give another port, or "" for none'
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5.0)


def parse_metrics_address(address: str) -> tuple[str, int]:
    """Return (IP address, port). Raises ConfigurationError, also for a host name: addresses beyond loopback must be written out."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigurationError(
            f'metrics_address: {address!r} is not host:port; give an address such as 127.0.0.1:19341, or "" for none'
        )
    if host == "localhost":
        host = "127.0.0.1"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        raise ConfigurationError(
            f"metrics_address: {address!r} is not an IP address; every user who reaches the address can read the metrics, so an "
            "address beyond loopback has to be written out (for every interface: 0.0.0.0:19341)"
        ) from None
    if not found.is_loopback:
        log.warning("metrics_beyond_loopback", address=address)
    return str(found), int(port)
