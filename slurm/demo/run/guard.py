"""A process beside the demonstration that clears up after it when it is killed (kill -9, out of memory).

Its standard input is a pipe from the demonstration. Any text in it means that everything has been removed. The end of the pipe
without a text means that the demonstration has died, because the kernel has closed the pipe.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def main() -> int:
    """Wait for the end of the demonstration, and clear up if it was killed."""
    folder, cluster = Path(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends by itself together with the demonstration
    if sys.stdin.buffer.read():
        return 0
    clear_up(folder, cluster)
    return 0


def clear_up(folder: Path, cluster: str) -> None:
    """Take the mini-cluster down and delete the folder. The services have ended with their parent."""
    from slurm.demo.run.workdir import remove
    from slurm.errors import MiniClusterError, NotRunningError
    from slurm.minicluster import teardown

    if cluster:
        try:
            teardown.down(cluster)
        except NotRunningError:
            pass
        except MiniClusterError as error:
            sys.stderr.write(f"headway demo: it was killed, and not everything could be removed: {error}\n")
            return
    remove(folder)


if __name__ == "__main__":
    raise SystemExit(main())
