"""`headway policy`: show the policy that decides, or use another."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.commands.call import connected, show
from controller.cli.commands.options import Config, Json, SocketPath
from controller.cli.render.status import show_policy

policy_app = typer.Typer(
    help="Show or change the policy that places jobs.", no_args_is_help=True, rich_markup_mode=None
)


@policy_app.command("show")
def policy_show(as_json: Json = False, config: Config = None, socket: SocketPath = None) -> None:
    """Show which policy decides, and whether its server answers."""
    with connected(config, socket, as_json) as client:
        show(client.policy(), as_json, show_policy)


@policy_app.command("use", short_help="Let the policy server at ADDRESS decide, if it passes the checks.")
def policy_use(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="unix:///path/to.sock, or 127.0.0.1:PORT.")],
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Let the policy server at ADDRESS decide from now on, if it passes the checks. After a restart of the controller,
    policy_address of its settings decides again."""
    with connected(config, socket, as_json, change=True) as client:
        show(client.use_policy(address), as_json, show_policy)
