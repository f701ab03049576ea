"""The job of a process: examples in Slurm's own forms, and forgeries."""

import os
import select
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from nodeagent.errors import IdentityError
from nodeagent.identity.bounded_read import BoundedReader
from nodeagent.identity.peer import (
    Identifier,
    Peer,
    has_job_cgroups,
    is_alive,
    open_pidfd,
    peer_of,
    slurm_cgroup,
)
from nodeagent.identity.procfs import ProcFiles, parent, start_ticks, used
from nodeagent.identity.stepd import stepd_job
from nodeagent.identity.unix_names import names_of

# Read in a batch job of Slurm 22.05.8 on a mini-cluster with cgroup v1, as user daemon.
BATCH_V1 = """9:name=systemd:/
8:pids:/
7:blkio:/
6:freezer:/slurm_n1/uid_1/job_1/step_batch
5:devices:/slurm_n1/uid_1/job_1/step_batch/task_0
4:memory:/
3:cpuset:/
2:cpuacct:/
1:cpu:/
0::/
"""
STEP_V1 = BATCH_V1.replace("step_batch", "step_0")
# The forms of Slurm's documentation (cgroup.conf, cgroup_v2.html).
SHARED_V1 = "4:cpu,cpuacct:/slurm/uid_1000/job_4294901/step_12/task_3\n3:memory:/slurm/uid_1000/job_4294901/step_12\n"
BATCH_V2 = "0::/system.slice/slurmstepd.scope/job_123/step_batch/user/task_0\n"
MULTI_V2 = "0::/system.slice/n1_slurmstepd.scope/job_123/step_extern/user/task_special\n"
STAT = "25 (cat) R 23 23 18 0 -1 4194304 78 5 0 0 3 4 10 20 20 0 1 0 1306548 3133440 418 1048576000 9 9 1 0 0 0 0 0 0"


@pytest.mark.parametrize(
    ("text", "job_id", "step_id", "uid"),
    [
        (BATCH_V1, 1, "batch", 1),
        (STEP_V1, 1, "0", 1),
        (SHARED_V1, 4294901, "12", 1000),
        (BATCH_V2, 123, "batch", None),
        (MULTI_V2, 123, "extern", None),
        ("0::/system.slice/slurmstepd.scope/job_9/step_interactive/user/task_0/container", 9, "interactive", None),
        ("0::/site.slice/slurm.slice/slurmstepd.scope/job_9/step_0", 9, "0", None),
        ("6:freezer:/slurm_n1/uid_1/job_5 (deleted)", 5, "", 1),
    ],
)
def test_paths_of_jobs(text, job_id, step_id, uid):
    found = slurm_cgroup(text)
    assert (found.job_id, found.step_id, found.uid) == (job_id, step_id, uid)


def test_the_jobs_own_folder_is_found_for_every_cgroup_controller():
    assert slurm_cgroup(BATCH_V1).folders == (
        ("freezer", "/slurm_n1/uid_1/job_1"),
        ("devices", "/slurm_n1/uid_1/job_1"),
    )
    assert slurm_cgroup(SHARED_V1).folders[:2] == (
        ("cpu", "/slurm/uid_1000/job_4294901"),
        ("cpuacct", "/slurm/uid_1000/job_4294901"),
    )
    assert slurm_cgroup(BATCH_V2).folders == (("", "/system.slice/slurmstepd.scope/job_123"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/user.slice/user-1000.slice/session-2.scope",
        # Cgroups that a user can create below the user's own service manager, or below a service that delegates to it.
        "0::/user.slice/user-1.slice/user@1.service/slurmstepd.scope/job_5/step_0",
        "0::/user.slice/user-1.slice/user@1.service/system.slice/slurmstepd.scope/job_5/step_0",
        "0::/user.slice/user-1.slice/slurmstepd.scope/job_5/step_0",
        "0::/system.slice/rootless.service/slurmstepd.scope/job_5/step_0",
        "6:freezer:/docker/slurm/uid_1/job_5/step_0",
        "6:freezer:/../../slurm_n1/uid_1/job_5/step_0",
        "6:freezer:/slurm/uid_1/job_5x/step_0",
        "6:freezer:/slurm/uid_1/job_0/step_0",
        "6:freezer:/slurm/uid_1/job_99999999999/step_0",
        "6:freezer:/slurmd/uid_1/job_5",
        "1:name=systemd:/system.slice/slurmstepd.scope/job_5/step_0",  # v2's form in a v1 hierarchy
        "nonsense",
    ],
)
def test_paths_that_are_no_job_s(text):
    assert slurm_cgroup(text) is None


def test_cgroups_of_two_jobs_are_refused():
    with pytest.raises(IdentityError, match=r"different jobs: \[5, 6\]"):
        slurm_cgroup("6:freezer:/slurm/uid_1/job_5/step_0\n5:devices:/slurm/uid_1/job_6/step_0")


@pytest.mark.parametrize(
    ("title", "sockets", "found"),
    [
        # Debian's slurmstepd has room for 18 characters, and its spool socket has the whole.
        ("slurmstepd: [1.bat", ("/var/spool/slurmd/n1/n1_1.4294967291",), (1, "batch")),
        ("slurmstepd: [1.0] ", ("/var/spool/slurmd/n1/n1_1.0",), (1, "0")),
        ("slurmstepd: [12345", ("/run/other", "/var/spool/slurmd/n1_x_1234567.12.1"), (1234567, "12")),
        ("slurmstepd: [12345", (), None),
        ("slurmstepd: [123.", (), (123, "")),
        ("slurmstepd: [1234567.extern]", (), (1234567, "extern")),
        ("slurmstepd infinity", (), None),
        ("sleep 5", ("/tmp/socket",), None),
    ],
)
def test_facts_from_a_slurmstepd(title, sockets, found):
    assert stepd_job(title, sockets) == found


def test_fields_of_stat():
    assert start_ticks(STAT) == 1306548
    assert parent(STAT) == 23
    assert used(STAT) == (3 + 4 + 10 + 20, 418)
    assert start_ticks(STAT.replace("(cat)", "(a) R 1 1 (b c)")) == 1306548
    with pytest.raises(ValueError, match="not a line"):
        start_ticks("25 (cat")


@dataclass
class World:
    """A fake /proc."""

    cgroups: dict[int, str] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    starts: dict[int, list[int]] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)
    programs: dict[int, str] = field(default_factory=dict)
    titles: dict[int, str] = field(default_factory=dict)
    sockets: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def cgroup(self, pid):
        return self.cgroups.get(pid, "0::/\n")

    def stat(self, pid):
        if pid not in self.parents:
            raise FileNotFoundError(pid)
        reported = self.starts.get(pid, [pid])
        start = reported.pop(0) if len(reported) > 1 else reported[0]
        return f"{pid} (x) S {self.parents[pid]} " + "0 " * 17 + f"{start} 0 0"

    def owner(self, pid):
        return self.owners.get(pid, 1000)

    def user(self, pid):
        return self.owner(pid)

    def is_roots(self, pid):
        return self.owner(pid) == 0

    def program(self, pid):
        return self.programs.get(pid, "python")

    def title(self, pid):
        return self.titles.get(pid, "")

    def listening(self, pid):
        return self.sockets.get(pid, ())

    def environment(self, pid):
        return {}


@pytest.fixture
def alive():
    pidfd = os.pidfd_open(os.getpid())
    yield pidfd
    os.close(pidfd)


def test_a_process_in_a_job(alive, tmp_path):
    world = World(cgroups={50: BATCH_V1}, parents={50: 40}, owners={50: 1})
    found = Identifier(world, cgroup_root=tmp_path).identify(Peer(50, 1, 1), alive)
    assert (found.job_id, found.step_id, found.uid, found.source, found.start_ticks) == (1, "batch", 1, "cgroup", 50)


def test_a_process_of_another_user_in_the_job_is_refused(alive, tmp_path):
    world = World(cgroups={50: BATCH_V1}, parents={50: 40})
    with pytest.raises(IdentityError, match="uid 1000 is in job 1 of uid 1"):
        Identifier(world, cgroup_root=tmp_path).identify(Peer(50, 1000, 1), alive)


@pytest.mark.parametrize("cgroup", [BATCH_V1, BATCH_V2])
def test_a_process_that_acts_as_another_than_connected_is_refused(alive, tmp_path, cgroup):
    """A path of v2 does not name the owner of the job."""
    world = World(cgroups={50: cgroup}, parents={50: 40}, owners={50: 0})
    with pytest.raises(IdentityError, match="connected as uid 1, and acts as 0"):
        Identifier(world, cgroup_root=tmp_path).identify(Peer(50, 1, 1), alive)


def test_a_pid_that_is_another_process_s_by_now_is_refused(alive, tmp_path):
    world = World(cgroups={50: BATCH_V1}, parents={50: 40}, owners={50: 1}, starts={50: [100, 200]})
    with pytest.raises(IdentityError, match="ended while"):
        Identifier(world, cgroup_root=tmp_path).identify(Peer(50, 1, 1), alive)


def test_a_process_that_is_gone_is_refused_even_if_its_files_are_there(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    pidfd = os.pidfd_open(child.pid)
    select.select([pidfd], [], [])
    world = World(cgroups={50: BATCH_V1}, parents={50: 40}, owners={50: 1})
    with pytest.raises(IdentityError, match="ended while"):
        Identifier(world, cgroup_root=tmp_path).identify(Peer(50, 1, 1), pidfd)
    os.close(pidfd)
    child.wait()


def test_no_pid_and_no_process(alive, tmp_path):
    with pytest.raises(IdentityError, match="pid namespace"):
        Identifier(World(), cgroup_root=tmp_path).identify(Peer(0, 1, 1), alive)
    with pytest.raises(IdentityError, match="cannot be read"):
        Identifier(World(), cgroup_root=tmp_path).identify(Peer(9, 1, 1), alive)


def under_slurmstepd(**changes):
    """Process 50 was started by 40, a shell, which was started by 30, a slurmstepd of job 7."""
    return World(
        **{
            "parents": {50: 40, 40: 30, 30: 1},
            "owners": {30: 0},
            "programs": {30: "slurmstepd-wlm"},
            "titles": {30: "slurmstepd: [7.batch]"},
        }
        | changes
    )


def test_ancestry_where_slurm_makes_no_cgroups(alive, tmp_path):
    found = Identifier(under_slurmstepd(), cgroup_root=tmp_path).identify(Peer(50, 1000, 1), alive)
    assert (found.job_id, found.step_id, found.source) == (7, "batch", "ancestry")


def test_ancestry_is_not_believed_where_slurm_makes_cgroups(alive, tmp_path):
    (tmp_path / "freezer/slurm_n1").mkdir(parents=True)
    assert has_job_cgroups(tmp_path)
    with pytest.raises(IdentityError, match="not in the cgroup of a Slurm job"):
        Identifier(under_slurmstepd(), cgroup_root=tmp_path).identify(Peer(50, 1000, 1), alive)
    with pytest.raises(IdentityError, match="not in the cgroup of a Slurm job"):
        Identifier(under_slurmstepd(), "cgroup", tmp_path / "none").identify(Peer(50, 1000, 1), alive)


@pytest.mark.parametrize(
    "forgery",
    [
        {"owners": {}},  # a program of the user with this name
        {"programs": {30: "su"}},  # a setuid program, started by a link of that name
        {"parents": {50: 40, 40: 1, 30: 1}},  # not above the process
        {"titles": {}},
    ],
)
def test_forged_slurmstepds_are_not_believed(alive, tmp_path, forgery):
    with pytest.raises(IdentityError, match="no slurmstepd above"):
        Identifier(under_slurmstepd(**forgery), cgroup_root=tmp_path).identify(Peer(50, 1000, 1), alive)


def test_the_outermost_slurmstepd_counts(alive, tmp_path):
    world = under_slurmstepd(
        parents={50: 40, 40: 35, 35: 30, 30: 1},
        owners={30: 0, 35: 0},
        programs={30: "slurmstepd", 35: "slurmstepd"},
        titles={30: "slurmstepd: [7.batch]", 35: "slurmstepd: [8.batch]"},
    )
    assert Identifier(world, cgroup_root=tmp_path).identify(Peer(50, 1000, 1), alive).job_id == 7


def test_an_ancestor_that_began_later_is_not_one(alive, tmp_path):
    with pytest.raises(IdentityError, match="the pid was reused"):
        Identifier(under_slurmstepd(starts={40: [60]}), cgroup_root=tmp_path).identify(Peer(50, 1000, 1), alive)


def test_peer_and_pidfd_of_a_real_connection():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        peer = peer_of(ours)
        assert peer == Peer(os.getpid(), os.getuid(), os.getgid())
        pidfd = open_pidfd(ours, peer)
        assert is_alive(pidfd)
        os.close(pidfd)


def test_the_real_proc_describes_this_process(tmp_path):
    files = ProcFiles()
    pid = os.getpid()
    assert parent(files.stat(pid)) == os.getppid()
    assert files.owner(pid) == os.geteuid()
    assert files.program(pid).startswith("python")
    job = subprocess.Popen(
        ["cat"], env={"SLURM_JOB_ID": "7", "NOT_SLURM_X": "a", "SLURM_Y": "b=c", "x": "SLURM_Z=1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write(b"there\n")
        job.stdin.flush()
        job.stdout.readline()  # before it runs, /proc shows no environment
        files._bounded = BoundedReader(timeout_s=30.0)
        assert files.environment(job.pid) == {"SLURM_JOB_ID": "7", "SLURM_Y": "b=c"}
    finally:
        job.kill()
        job.communicate()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "n1_77.0"))
        assert str(tmp_path / "n1_77.0") in files.listening(pid)
    with pytest.raises(OSError, match="No such"):
        files.stat(2**22 + 1)


def no_diagnostics(_inodes):
    raise OSError(93, "Protocol not supported")


def test_a_socket_that_the_kernel_leaves_out_of_one_reading_is_found(tmp_path, monkeypatch):
    # the table of sockets changes between two pieces of one reading
    files = ProcFiles(socket_names=no_diagnostics)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "n1_77.0"))
        whole = files._read(os.getpid(), "net/unix")
        without = b"\n".join(line for line in whole.split(b"\n") if not line.endswith(b"/n1_77.0"))
        answers = [without]
        monkeypatch.setattr(files, "_read", lambda _pid, _name: answers.pop() if answers else whole)
        assert str(tmp_path / "n1_77.0") in files.listening(os.getpid())


@pytest.mark.parametrize("files", [ProcFiles(), ProcFiles(socket_names=no_diagnostics)], ids=["asked", "listed"])
def test_a_socket_is_found_among_many(tmp_path, files):
    # /proc/PID/net/unix is read in pieces, and the kernel returns less than it was asked for, also before the end
    with ExitStack() as stack:
        names = [str(tmp_path / f"n1_{number}.0") for number in range(300)]
        for name in names:
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(name)
        assert set(names) <= set(files.listening(os.getpid()))


@pytest.mark.parametrize("files", [ProcFiles(), ProcFiles(socket_names=no_diagnostics)], ids=["asked", "listed"])
def test_a_name_with_a_line_break_is_no_other_socket_s_name(tmp_path, files):
    with socket.socket(socket.AF_UNIX) as own, socket.socket(socket.AF_UNIX) as forger:
        own.bind(str(tmp_path / "n1_9.0"))
        inode = os.fstat(own.fileno()).st_ino
        forger.bind(f"\0x\n0: 00000002 00000000 00010000 0001 01 {inode} /n1_666.0")
        found = files.listening(os.getpid())
    assert not [name for name in found if name.endswith("n1_666.0") and not name.startswith("@x")]


def has_diagnostics():
    """Return whether the kernel lists Unix sockets by sock_diag(7), which it may have been built without."""
    query = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 2**32 - 1, 0, 0, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as link:
            link.settimeout(60.0)
            link.sendto(struct.pack("=IHHII", 16 + len(query), 20, 0x301, 1, 0) + query, (0, 0))
            return struct.unpack_from("=IH", link.recv(65_536))[1] == 20  # an error otherwise
    except OSError:
        return False


def test_names_of_sockets_as_the_kernel_has_them(tmp_path):
    if not has_diagnostics():
        pytest.skip("the kernel has no diagnostics of Unix sockets")
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as abstract, socket.socket() as other:
        named.bind(path)
        abstract.bind("\0a\nb")
        inodes = [str(os.fstat(each.fileno()).st_ino) for each in (named, abstract, other)]
        bare, pair = socket.socketpair()
        with bare, pair:
            inodes.append(str(os.fstat(bare.fileno()).st_ino))
            found = names_of([*inodes, str(2**33)])
    assert found == {inodes[0]: path, inodes[1]: "@a\nb", inodes[3]: ""}
