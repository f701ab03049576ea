"""Names that the Admin service and its command-line client share. Imports nothing, so that the command line starts fast."""

from __future__ import annotations

ADMIN_SOCKET = "admin.sock"
"""Socket in the runtime folder that takes every call."""
STATUS_SOCKET = "status.sock"
"""Socket that most users may open; it refuses some calls."""
NOT_READY = "headway-not-ready"
"""Key in a call's trailing metadata: the controller runs, but has not read Slurm yet. UNAVAILABLE without it: nothing answers."""
