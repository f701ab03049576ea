"""Names, addresses and commands of a cluster's network.

Each node and slurmctld have a network namespace. A bridge connects them; it is in a namespace of its own, to which the firewall of
the host does not apply. The host has one link to the bridge. Deleting the namespaces deletes everything but that link.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm.errors import CommandError, PrerequisiteError
from slurm.minicluster.spec import ClusterSpec, parse_rate
from slurm.processes import run, run_tied

NETNS_DIR = Path("/run/netns")
CONTROLLER = "ctl"
"""Host name of the namespace of slurmctld."""
_POOLS = tuple(map(ipaddress.IPv4Network, ("10.77.0.0/16", "198.18.0.0/15", "172.31.0.0/16", "100.64.0.0/10")))
"""Networks from which clusters take theirs, the first that has a free one: none has addresses of the Internet."""
_WIDEST = 8
"""Routes to wider networks, such as 0.0.0.0/1 of a VPN, are parts of a default route. No private network is wider."""
_NAMED_ROUTES = 5
_FIRST_NODE = 11
_SHAPING_LATENCY = "50ms"
_MIN_BURST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class NetworkNames:
    """Names of the cluster's namespaces and of its link on the host, which depend only on the name of the cluster."""

    cluster: str

    @property
    def host_link(self) -> str:
        """Name of the link on the host: a digest of the cluster's name, because interface names have at most 15 characters."""
        return "hwmc" + hashlib.blake2s(self.cluster.encode(), digest_size=5).hexdigest()

    @property
    def switch(self) -> str:
        """Name of the namespace of the bridge."""
        return self.netns("switch")

    def netns(self, host: str) -> str:
        """Return the name of the namespace of a node, or of slurmctld."""
        return f"headway-{self.cluster}-{host}"

    def all_netns(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the names of all namespaces."""
        return (self.switch, self.netns(CONTROLLER), *(self.netns(node) for node in nodes))


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses in the /24 of a cluster."""

    subnet: ipaddress.IPv4Network

    @property
    def host(self) -> str:
        """Address of the host."""
        return str(self.subnet[1])

    @property
    def controller(self) -> str:
        """Address of slurmctld."""
        return str(self.subnet[2])

    def node(self, index: int) -> str:
        """Return the address of a node by its index from 0."""
        return str(self.subnet[_FIRST_NODE + index])

    def hosts_file(self, spec: ClusterSpec) -> str:
        """Return the text of /etc/hosts for every namespace."""
        lines = ["127.0.0.1 localhost", f"{self.host} host", f"{self.controller} {CONTROLLER}"]
        lines += [f"{self.node(i)} {name}" for i, name in enumerate(spec.node_names)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """Bytes that a node has sent and received since the boot of the cluster."""

    sent: int
    received: int


def free_subnet(cluster: str) -> ipaddress.IPv4Network:
    """Return a /24 that overlaps no address or route of this machine. The caller holds the machine-wide lock until it is in use."""
    return first_free(cluster, _networks_in_use())


def first_free(cluster: str, taken: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Return the first /24 of the pools that overlaps no network in `taken`; where the search starts depends on the name.

    Raises PrerequisiteError that names the widest routes in the way.
    """
    start = hashlib.blake2s(cluster.encode()).digest()[0]
    for pool in _POOLS:
        subnets = list(pool.subnets(new_prefix=24))
        in_pool = [network for network in taken if network.overlaps(pool)]
        for subnet in subnets[start:] + subnets[:start]:
            if not any(subnet.overlaps(other) for other in in_pool):
                return subnet
    in_the_way = {network for network in taken if any(network.overlaps(pool) for pool in _POOLS)}
    widest = sorted(in_the_way, key=lambda network: (network.prefixlen, network))[:_NAMED_ROUTES]
    raise PrerequisiteError(
        f"no free /24 in {', '.join(map(str, _POOLS))}, because this machine has routes into each: "
        f"{', '.join(map(str, widest))}; remove one (`ip route` lists them; a VPN may have added it), or boot on another machine"
    )


def _networks_in_use() -> list[ipaddress.IPv4Network]:
    routes = json.loads(run("ip", "-4", "-json", "route", "show", "table", "all").stdout or "[]")
    addresses = json.loads(run("ip", "-4", "-json", "address", "show").stdout or "[]")
    texts = [route["dst"] for route in routes if route["dst"] != "default"]
    texts += [f"{a['local']}/{a['prefixlen']}" for link in addresses for a in link.get("addr_info", []) if "local" in a]
    return without_default_routes(ipaddress.IPv4Network(text, strict=False) for text in texts)


def without_default_routes(networks: Iterable[ipaddress.IPv4Network]) -> list[ipaddress.IPv4Network]:
    """Return the networks without those that only are parts of a default route."""
    return [network for network in networks if network.prefixlen >= _WIDEST]


def build(spec: ClusterSpec, names: NetworkNames, addresses: Addresses) -> None:
    """Create namespaces, bridge, the link of the host, and NICs with their rate. None of these names may exist."""
    hosts = [(CONTROLLER, addresses.controller)] + [(n, addresses.node(i)) for i, n in enumerate(spec.node_names)]
    _ip(*(f"netns add {name}" for name in names.all_netns(spec.node_names)))
    _ip(
        f"link add {names.host_link} type veth peer name host netns {names.switch}",
        f"address add {addresses.host}/24 dev {names.host_link}",
        f"link set {names.host_link} up",
    )
    _ip(
        "link add br0 type bridge",
        "link set br0 up",
        "link set host master br0 up",
        *(f"link add {host} type veth peer name eth0 netns {names.netns(host)}" for host, _ in hosts),
        *(f"link set {host} master br0 up" for host, _ in hosts),
        netns=names.switch,
    )
    for host, address in hosts:
        _ip(f"address add {address}/24 dev eth0", "link set eth0 up", "link set lo up", netns=names.netns(host))
    if spec.rate is not None:
        _shape(spec, names, spec.rate)


def _shape(spec: ClusterSpec, names: NetworkNames, rate: str) -> None:
    """Limit both directions: sending at the node's end of its link, receiving at the end of the bridge."""
    burst = max(_MIN_BURST_BYTES, parse_rate(rate) // 8 // 500)  # 2 ms: with less, the kernel does not reach the rate
    limit = f"root tbf rate {rate} burst {burst} latency {_SHAPING_LATENCY}"
    _tc(*(f"qdisc add dev {node} {limit}" for node in spec.node_names), netns=names.switch)
    for node in spec.node_names:
        _tc(f"qdisc add dev eth0 {limit}", netns=names.netns(node))


def demolish(names: NetworkNames, nodes: Sequence[str]) -> None:
    """Delete everything that `build` has created and that still exists. The caller has ended the processes inside."""
    for name in names.all_netns(nodes):
        if (NETNS_DIR / name).exists():
            run("ip", "netns", "delete", name)
    if Path(f"/sys/class/net/{names.host_link}").exists():  # it may have been deleted together with its other end
        done = run("ip", "link", "delete", names.host_link, check=False)
        if done.returncode != 0 and Path(f"/sys/class/net/{names.host_link}").exists():
            raise CommandError(f"ip link delete {names.host_link}: {done.stderr.strip()}")


def link_bytes(names: NetworkNames) -> dict[str, LinkBytes]:
    """Return the counters of the NIC of each node, read at the end of the bridge, which receives what the node sends."""
    links = json.loads(run("ip", "-netns", names.switch, "-json", "-statistics", "link", "show").stdout)
    counters = {link["ifname"]: link["stats64"] for link in links}
    hosts = counters.keys() - {"lo", "br0", "host", CONTROLLER}
    return {
        host: LinkBytes(sent=counters[host]["rx"]["bytes"], received=counters[host]["tx"]["bytes"]) for host in hosts
    }


def listens(pid: int, port: int) -> bool:
    """Return whether a process listens on a TCP port (IPv4) in the network namespace of that process."""
    wanted = f":{port:04X}"
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return any(fields[1].endswith(wanted) and fields[3] == "0A" for fields in lines)


def _ip(*commands: str, netns: str | None = None) -> None:
    _batch("ip", commands, netns)


def _tc(*commands: str, netns: str | None = None) -> None:
    _batch("tc", commands, netns)


def _batch(program: str, commands: Sequence[str], netns: str | None) -> None:
    where = ("-netns", netns) if netns else ()
    run_tied(program, *where, "-batch", "-", stdin="\n".join(commands) + "\n")
