"""Findings of `headway doctor` about the audit log. Pure functions.

The controller itself reports a file that it could not write (`headway status`, and the finding "tasks"), as on a full disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import FileFacts, Host, UserFacts
    from controller.cli.doctor.seen import Seen

_READ_AND_WRITE, _WRITE_AND_ENTER = 6, 3


def audit_findings(
    settings: ControllerSettings, seen: Seen, host: Host, slurm_user: UserFacts | None
) -> Iterator[Finding]:
    """Yield one finding on whether the controller's user can write the file; none where that cannot be judged."""
    user = slurm_user if seen.lease is None else host.user(seen.lease.controller_uid)
    folder = host.file(settings.audit_path.parent)
    if user is None or (folder is None and settings.audit_file is None):  # state-dir reports a missing folder
        return
    yield _finding(settings, folder, host.file(settings.audit_path), user)


def _finding(
    settings: ControllerSettings, folder: FileFacts | None, found: FileFacts | None, user: UserFacts
) -> Finding:
    path = settings.audit_path
    lost = "what users request is only in the controller's log"
    if folder is None or folder.kind != "folder":
        what, mend = f"{path.parent}: no such folder, so {lost}", f"make it, owned by {user.name}"
    elif not folder.lets(user, _WRITE_AND_ENTER):
        what, mend = f"{user.name} may not write to {path.parent}, so {lost}", f"chown {user.name} {path.parent}"
    elif found is not None and found.kind != "file":
        what, mend = f"{path} is no file, so {lost}", f"move {path} away"
    elif found is not None and not found.lets(user, _READ_AND_WRITE):
        what, mend = f"{user.name} may not write {path}, so {lost}", f"chown {user.name} {path}; chmod 0640 {path}"
    elif found is not None and found.mode & 0o027:
        what = f"{path} has mode {found.mode:04o}: it says who requested what, and is for its owner and group alone"
        mend = f"chmod 0640 {path}"
    else:
        return Finding("audit", Level.OK, f"requests are recorded in {path}")
    return Finding("audit", Level.WARNING, what, mend)
