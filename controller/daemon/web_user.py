"""The user of headway-web, whose calls may be for the users that sign in on the page."""

from __future__ import annotations

import os
import pwd

from controller.base.config import WEB_USER, ControllerSettings
from controller.base.errors import ConfigurationError


def web_uid(settings: ControllerSettings) -> int | None:
    """Return the uid of `web_user` of the settings; None: no user may make calls for others.

    Raises ConfigurationError for a user that this machine does not have (the default one may be missing), and for users that
    other programs of Headway or of the machine have.
    """
    name = settings.web_user
    if not name:
        return None
    try:
        uid = int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        if name == WEB_USER:
            return None
        raise ConfigurationError(
            f"web_user: there is no user {name!r} on this machine; correct the name, or remove the key"
        ) from None
    if uid in {0, os.getuid()}:
        raise ConfigurationError(
            f"web_user: {name!r} is root or the controller's user; run headway-web as a user of its own ({WEB_USER})"
        )
    return uid
