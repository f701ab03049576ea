"""Waits beside the demonstration, and clears up after it when it dies without having done so (kill -9, out of memory).

Its standard input is a pipe from the demonstration. "All clear" through it means that nothing is left to do; its end
without that word means that the demonstration is dead: the kernel has closed it.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def main() -> int:
    """Wait, and clear up if need be."""
    folder, cluster = Path(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends by itself when the demonstration does
    if sys.stdin.buffer.read():
        return 0
    clear_up(folder, cluster)
    return 0


def clear_up(folder: Path, cluster: str) -> None:
    """Take the mini-cluster down and delete the folder. The daemons have died with their parent."""
    from slurm.demo.run.workdir import remove
    from slurm.errors import MiniClusterError, NotRunningError
    from slurm.minicluster import teardown

    if cluster:
        try:
            teardown.down(cluster)
        except NotRunningError:
            pass
        except MiniClusterError as error:
            sys.stderr.write(f"headway demo: it was killed, and not everything could be cleared up: {error}\n")
            return
    remove(folder)


if __name__ == "__main__":
    raise SystemExit(main())
