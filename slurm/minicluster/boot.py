"""Steps of a boot: the plan, the files (folders, keys, configuration, fake GPUs), and munged."""

from __future__ import annotations

import ipaddress
import os
import pwd
import secrets
import shutil
import stat
import time
from pathlib import Path

from slurm.errors import BootError, PrerequisiteError
from slurm.minicluster import teardown
from slurm.minicluster.host import cgroups, configuration, namespaces, network
from slurm.minicluster.host.configuration import GPU_MAJOR
from slurm.minicluster.host.layout import Layout
from slurm.minicluster.host.network import CONTROLLER, Addresses
from slurm.minicluster.record import Record, boot_id
from slurm.minicluster.spec import ClusterSpec
from slurm.processes import ProcessRef, run_tied, wait_until

_MUNGED_TIMEOUT_S = 60.0


def require_prerequisites(spec: ClusterSpec) -> None:
    """Raise PrerequisiteError when something is missing; the text says what to do."""
    from slurm.prerequisites import missing

    reasons = missing(accounting=spec.accounting)
    if reasons:
        raise PrerequisiteError("\n".join(reasons))
    try:
        pwd.getpwnam(spec.slurm_user)
    except KeyError:
        raise PrerequisiteError(
            f"user {spec.slurm_user}: no such user; Debian's package slurmctld creates it"
        ) from None


def plan(spec: ClusterSpec) -> Record:
    """Choose a free subnet and check the folder; write nothing. The caller holds the machine-wide lock."""
    return Record(
        name=spec.name,
        directory=str(spec.home),
        made_directory=teardown.prepare_directory(spec.home) or spec.directory is None,
        nodes=spec.node_names,
        gpus=spec.gpus,
        rate=spec.rate,
        cgroup=cgroups.decide(spec.cgroup),
        subnet=str(network.free_subnet(spec.name)),
        slurm_user=spec.slurm_user,
        boot_id=boot_id(),
        booted_at_s=time.time(),
    )


def write_files(spec: ClusterSpec, record: Record) -> None:
    """Fill the folder of the cluster. Files that an earlier mini-cluster left in it are deleted."""
    layout = Layout(spec.home)
    teardown.remove_files(layout.root, whole=False)
    layout.root.mkdir(parents=True, exist_ok=True)
    layout.root.chmod(0o755)
    (layout.root / teardown.MARKER).write_text(
        "Files of a mini-cluster: headway-minicluster deletes everything in this folder.\n"
    )
    _make_folders(layout, spec)
    _write_configuration(spec, record, layout)
    for gpu in range(spec.gpus):
        device = layout.devices / f"nvidia{gpu}"
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(GPU_MAJOR, gpu))
        device.chmod(0o666)


def _make_folders(layout: Layout, spec: ClusterSpec) -> None:
    modes = {
        layout.etc: 0o755,
        layout.run: 0o755,
        layout.log: 0o755,
        layout.state: 0o700,
        layout.spool: 0o755,
        layout.devices: 0o755,
        layout.munge: 0o700,
        layout.work: 0o1777,
        **{layout.spool / node: 0o755 for node in spec.node_names},
        **{layout.run / f"sys.{host}": 0o700 for host in (CONTROLLER, *spec.node_names)},
    }
    owned = [layout.state, layout.log, layout.run]
    if spec.accounting:
        modes[layout.database] = 0o700
        owned.append(layout.database)
    for folder, mode in modes.items():
        folder.mkdir()
        folder.chmod(mode)
    for folder in owned:
        shutil.chown(folder, spec.slurm_user)


def _write_configuration(spec: ClusterSpec, record: Record, layout: Layout) -> None:
    addresses = Addresses(ipaddress.IPv4Network(record.subnet))
    files = {
        layout.slurm_conf: configuration.slurm_conf(spec, layout, addresses, record.cgroup),
        layout.etc / "cgroup.conf": configuration.cgroup_conf(record.cgroup),
        layout.etc / "plugstack.conf": "",
        layout.etc / "hosts": addresses.hosts_file(spec),
        **{layout.etc / f"hostname.{host}": f"{host}\n" for host in (CONTROLLER, *spec.node_names)},
    }
    if spec.gpus:
        files[layout.etc / "gres.conf"] = configuration.gres_conf(spec, layout)
    for path, text in files.items():
        path.write_text(text)
        path.chmod(0o644)
    if spec.accounting:
        layout.slurmdbd_conf.touch(mode=0o600)
        layout.slurmdbd_conf.write_text(configuration.slurmdbd_conf(spec, layout, addresses))
        shutil.chown(layout.slurmdbd_conf, spec.slurm_user)  # slurmdbd refuses a file of another owner
    if spec.job_submit_lua is not None:
        _copy(spec.job_submit_lua, layout.etc / "job_submit.lua")
    key = layout.munge / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(secrets.token_bytes(128))


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o644)


def start_munged(controller: ProcessRef, layout: Layout, cgroup: str) -> None:
    """Start the cluster's own munged in slurmctld's namespaces; all hosts share its socket. Raises BootError."""
    init = namespaces.init_pid(controller)
    if init is None:
        raise BootError(f"host {CONTROLLER} is down: {namespaces.tail(layout.log / f'{CONTROLLER}.init.log')}")
    files = {
        "key-file": layout.munge / "munge.key",
        "log-file": layout.munge / "munged.log",
        "seed-file": layout.munge / "munged.seed",
        "pid-file": layout.munge / "munged.pid",
        "socket": layout.munge_socket,
    }
    options = [f"--{option}={path}" for option, path in files.items()]
    run_tied(*namespaces.entering(init, cgroup), "munged", "--force", *options)
    if not wait_until(layout.munge_socket.exists, _MUNGED_TIMEOUT_S):
        raise BootError(f"munged did not start: {namespaces.tail(layout.munge / 'munged.log')}")
