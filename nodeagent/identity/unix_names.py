"""Names of Unix sockets by inode, from the kernel's socket diagnostics (sock_diag(7)).

/proc/net/unix prints names as they are. A name may contain a line break, so every user can add lines to that table, with the inode
of another process's socket. The answers here are binary: each has the name of one socket, by its length.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
_ERROR = 2
_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBHIIIII")  # struct unix_diag_req
_ANSWER = struct.Struct("=BBBBIII")  # struct unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_SHOW_NAME = 1
_ALL_STATES = 0xFFFFFFFF
_ANY_COOKIE = 0xFFFFFFFF
_NAME = 0
_KERNEL = 0
_MISSING = frozenset({errno.ENOENT, errno.ESTALE})
"""The socket was closed meanwhile, or belongs to another family or network namespace."""
_ANSWER_BYTES = 8192
_WAIT_S = 1.0
"""The kernel answers within the call that sends the request; this is only a bound."""


def names_of(inodes: Iterable[str]) -> dict[str, str]:
    """Return the name of each of these sockets in the agent's network namespace; empty = it has none.

    Sockets of other families and namespaces are left out. Names of abstract sockets begin with "@". Raises OSError if the kernel
    has no diagnostics of Unix sockets.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_WAIT_S)
        found = ((inode, _name_of(link, int(inode))) for inode in inodes if int(inode) < 2**32)
        return {inode: name for inode, name in found if name is not None}


def _name_of(link: socket.socket, inode: int) -> str | None:
    """Return the name of one socket; None = there is no Unix socket with this inode. Raises OSError."""
    query = _QUERY.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, inode, _SHOW_NAME, _ANY_COOKIE, _ANY_COOKIE)
    link.sendto(_HEADER.pack(_HEADER.size + len(query), _BY_FAMILY, _REQUEST, inode, 0) + query, (0, 0))
    answer, (sender, _groups) = link.recvfrom(_ANSWER_BYTES)
    _size, kind, _flags, number, _port = _HEADER.unpack_from(answer)
    if sender != _KERNEL or number != inode:
        raise OSError(errno.EPROTO, "the answer is not the kernel's, or belongs to another request")
    if kind == _ERROR:
        error = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if error in _MISSING:
            return None
        raise OSError(error, os.strerror(error))
    return _plain(_attribute(answer, _HEADER.size + _ANSWER.size, _NAME))


def _attribute(answer: bytes, at: int, wanted: int) -> bytes:
    while at + _ATTRIBUTE.size <= len(answer):
        size, kind = _ATTRIBUTE.unpack_from(answer, at)
        if kind == wanted:
            return answer[at + _ATTRIBUTE.size : at + size]
        at += max(_ATTRIBUTE.size, (size + 3) & ~3)
    return b""


def _plain(name: bytes) -> str:
    if name.startswith(b"\0"):
        return "@" + name[1:].decode(errors="replace")
    return name.partition(b"\0")[0].decode(errors="replace")
