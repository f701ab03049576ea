"""Steps of a boot: the plan, the files (folders, keys, configuration, fake GPUs), and munged."""

from __future__ import annotations

import ipaddress
import os
import pwd
import secrets
import shutil
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from slurm.errors import BootError, PrerequisiteError
from slurm.minicluster import teardown
from slurm.minicluster.host import cgroups, configuration, namespaces, network
from slurm.minicluster.host.configuration import GPU_MAJOR
from slurm.minicluster.host.files import ClusterFiles
from slurm.minicluster.host.network import CONTROLLER, Addresses
from slurm.minicluster.record import Record, boot_id
from slurm.minicluster.spec import ClusterSpec
from slurm.processes import ProcessRef, run_tied, wait_until
from slurm.setup.folders import make_folder

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


def plan(spec: ClusterSpec, others: Sequence[Record]) -> Record:
    """Choose a free subnet and check the folder; write nothing. `others` are the other clusters of this machine.

    The caller holds the machine-wide lock.
    """
    return Record(
        name=spec.name,
        directory=str(spec.home),
        made_directory=teardown.prepare_directory(spec.home, others) or spec.directory is None,
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
    files = ClusterFiles(spec.home)
    teardown.remove_files(files.root, None, whole=False)
    make_folder(files.root)
    files.root.chmod(0o755)
    teardown.write_marker(files.root, spec.name)
    _make_folders(files, spec)
    for name, content in spec.added_files.items():
        path = files.root / name
        make_folder(path.parent)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755)
    _write_configuration(spec, record, files)
    for gpu in range(spec.gpus):
        device = files.devices / f"nvidia{gpu}"
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(GPU_MAJOR, gpu))
        device.chmod(0o666)


def _make_folders(files: ClusterFiles, spec: ClusterSpec) -> None:
    modes = {
        files.etc: 0o755,
        files.run: 0o755,
        files.log: 0o755,
        files.state: 0o700,
        files.spool: 0o755,
        files.devices: 0o755,
        files.munge: 0o700,
        files.work: 0o1777,
        **{files.spool / node: 0o755 for node in spec.node_names},
        **{files.run / f"sys.{host}": 0o700 for host in (CONTROLLER, *spec.node_names)},
    }
    owned = [files.state, files.log, files.run]
    if spec.accounting:
        modes[files.database] = 0o700
        owned.append(files.database)
    for folder, mode in modes.items():
        folder.mkdir()
        folder.chmod(mode)
    for folder in owned:
        shutil.chown(folder, spec.slurm_user)


def _write_configuration(spec: ClusterSpec, record: Record, files: ClusterFiles) -> None:
    addresses = Addresses(ipaddress.IPv4Network(record.subnet))
    texts = {
        files.slurm_conf: configuration.slurm_conf(spec, files, addresses, record.cgroup),
        files.etc / "cgroup.conf": configuration.cgroup_conf(record.cgroup),
        files.etc / "plugstack.conf": "",
        files.etc / "hosts": addresses.hosts_file(spec),
        **{files.etc / f"hostname.{host}": f"{host}\n" for host in (CONTROLLER, *spec.node_names)},
    }
    if spec.gpus:
        texts[files.etc / "gres.conf"] = configuration.gres_conf(spec, files)
    for path, text in texts.items():
        path.write_text(text)
        path.chmod(0o644)
    if spec.accounting:
        files.slurmdbd_conf.touch(mode=0o600)
        files.slurmdbd_conf.write_text(configuration.slurmdbd_conf(spec, files, addresses))
        shutil.chown(files.slurmdbd_conf, spec.slurm_user)  # slurmdbd refuses a file of another owner
    if spec.job_submit_lua is not None:
        _copy(spec.job_submit_lua, files.etc / "job_submit.lua")
    key = files.munge / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(secrets.token_bytes(128))


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o644)


def start_munged(controller: ProcessRef, files: ClusterFiles, cgroup: str) -> None:
    """Start the cluster's own munged in slurmctld's namespaces; all hosts share its socket. Raises BootError."""
    init = namespaces.init_pid(controller)
    if init is None:
        raise BootError(f"host {CONTROLLER} is down: {namespaces.tail(files.log / f'{CONTROLLER}.init.log')}")
    paths = {
        "key-file": files.munge / "munge.key",
        "log-file": files.munge / "munged.log",
        "seed-file": files.munge / "munged.seed",
        "pid-file": files.munge / "munged.pid",
        "socket": files.munge_socket,
    }
    options = [f"--{option}={path}" for option, path in paths.items()]
    run_tied(*namespaces.entering(init, cgroup), "munged", "--force", *options)
    if not wait_until(files.munge_socket.exists, _MUNGED_TIMEOUT_S):
        raise BootError(f"munged did not start: {namespaces.tail(files.munge / 'munged.log')}")
