"""The services of Headway for the cluster: policy server, controller and watchdog, and questions to the controller."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from controller.cli.client import AdminClient, CallError
from slurm.demo.errors import DemoError
from slurm.testbed.installation import Installation
from slurm.testbed.programs import InstallationError

STALE_AFTER_S = 5.0


class Headway:
    """The running services. Invariant: after the context none of their processes is left, and no lease."""

    def __init__(self, installation: Installation, policy: str, *, watchdog: bool = True) -> None:
        """Take a configured installation. `watchdog` is False when Slurm is emulated inside the controller."""
        self._installation = installation
        self._policy = policy
        self._watchdog = watchdog
        self._admin: AdminClient | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except InstallationError as error:
            self._stop()
            raise DemoError(str(error)) from error
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def require_alive(self) -> None:
        """Raise DemoError when a service has ended."""
        for name, process in self._installation.processes.items():
            status = process.poll()
            if status is not None:
                said = self._installation.log(name)[-1000:]
                raise DemoError(f"the {name} ended with status {status}; its log:\n{said}")

    def explanations(self) -> Mapping[str, str]:
        """Return job id → the controller's explanation, for every job that has not ended; empty while it does not answer."""
        try:
            return {entry.job_id: entry.why for entry in self.admin.queue().entries}
        except CallError:
            return {}

    def reason(self, job_id: str) -> str:
        """Return the policy's reason for the placement of a job; "" when it has none, or the controller does not answer."""
        try:
            decisions = self.admin.why(job_id).decisions
        except CallError:
            return ""
        return next((decision.reason for decision in decisions if decision.placement), "")

    @property
    def admin(self) -> AdminClient:
        """Connection to the controller."""
        assert self._admin is not None, "only within the context"
        return self._admin

    def _start(self) -> None:
        self._installation.start_policy(self._policy)
        self._installation.start_controller()
        if self._watchdog:
            self._installation.start_watchdog(every_s=2.0)
        self._admin = AdminClient(self._installation.runtime_dir / "admin.sock")

    def _stop(self) -> None:
        """Stop the services and remove the lease, so that Slurm schedules by itself at once and not only after some seconds."""
        if self._admin is not None:
            self._admin.__exit__(None, None, None)
            self._admin = None
        for name in reversed(list(self._installation.processes)):
            self._installation.stop(name)
        (self._installation.runtime_dir / "lease").unlink(missing_ok=True)
