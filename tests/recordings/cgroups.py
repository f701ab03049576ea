"""The cgroups of a node while jobs run on it, and what the slurmstepds show of themselves in /proc."""

from __future__ import annotations

from slurm.minicluster.cluster import RunningCluster

_TREE = r"""
cd /sys/fs/cgroup
find . -type d | sort | while read -r folder; do
    [ "$folder" = . ] || printf '%s\t%s\n' "${folder#./}" "$(tr '\n' ' ' <"$folder/cgroup.procs")"
done
"""
_PROCESSES = r"""
for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    cgroup=$(tail -n 1 "$folder/cgroup") && words=$(tr '\0' ' ' <"$folder/cmdline") || continue
    case $cgroup in
    *slurmstepd.scope*) printf '%s\t%s\t%s\t%s\n' "$pid" "$cgroup" "$words" "$(readlink "$folder/exe")" ;;
    esac
done
"""
_SOCKETS = "cat /proc/net/unix"


def recorded_cgroups(cluster: RunningCluster, node: str) -> dict[str, str]:
    """Return the texts of a node by the names of their files; none where Slurm does not use cgroups of v2."""
    if cluster.cgroup != "v2":
        return {}
    texts = {"cgroup-tree.txt": _TREE, "processes.txt": _PROCESSES, "net-unix.txt": _SOCKETS}
    return {name: cluster.run_on(node, "sh", "-c", text).stdout for name, text in texts.items()}
