"""Users whose policy servers may decide: users who may change every job anyway, and the users in the settings."""

from __future__ import annotations

import os
import pwd

from controller.base.config import POLICY_USER, ControllerSettings
from controller.base.errors import ConfigurationError
from policies.serving.peers import TrustedUsers


def trusted_users(settings: ControllerSettings, controller_uid: int | None = None) -> TrustedUsers:
    """Return root, the controller's user (None: this process is the controller), and `policy_users` of the settings.

    Raises ConfigurationError for a user that this machine does not have; the default one may be missing.
    """
    uids = {0, os.getuid() if controller_uid is None else controller_uid}
    for name in settings.policy_users:
        if name.isdecimal():
            uids.add(int(name))
            continue
        try:
            uids.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            if name != POLICY_USER:
                raise ConfigurationError(
                    f"policy_users: there is no user {name!r} on this machine; correct the name, or remove it"
                ) from None
    return TrustedUsers(
        frozenset(uids),
        "run the server as one of these, or add its user to policy_users in controller.toml and restart headway-controller",
    )
