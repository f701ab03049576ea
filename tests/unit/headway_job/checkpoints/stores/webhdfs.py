"""A part of WebHDFS that is enough for fsspec: names and data by HTTP, data after a redirect, all in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

_NAMES = "/webhdfs/v1"
_DATA = "/data"


class WebHdfs(ThreadingHTTPServer):
    """A server on a loopback port, in threads of this process."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files: dict[str, bytes] = {}
        self.folders = {"/"}
        self.lock = threading.Lock()
        self.asked: list[tuple[str, str]] = []
        """Operations and paths, in order."""
        self.refusing_renames = False
        self.drops: Callable[[str, str], bool] = lambda operation, path: False
        """Return True if the test wants this request to break off."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close(self) -> None:
        """Stop the server."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients whose connection was cut."""

    def names_in(self, path: str) -> list[str]:
        """Answer a request about a file or folder."""
        within = path.rstrip("/") + "/"
        found = {one[len(within) :].split("/")[0] for one in (*self.files, *self.folders) if one.startswith(within)}
        return sorted(found - {""})


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebHdfs

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""

    def _ask(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        operation = query.get("op", "").lower()
        to_data = address.path.startswith(_DATA)
        path = unquote(address.path[len(_DATA if to_data else _NAMES) :]) or "/"
        with self.server.lock:
            self.server.asked.append((operation, path))
            if self.server.drops(operation, path):
                self.close_connection = True
                return
            answer = getattr(self, f"_{'data' if to_data else 'name'}_{operation}", None)
            if answer is None:
                self._answer(400, {"RemoteException": {"exception": "IllegalArgumentException", "message": operation}})
            else:
                answer(path, query, body)

    do_GET = do_PUT = do_POST = do_DELETE = _ask  # noqa: N815

    def _answer(self, status: int, row: Any = None, data: bytes | None = None, **headers: str) -> None:
        data = (b"" if row is None else json.dumps(row).encode()) if data is None else data
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _missing(self, path: str) -> None:
        missing = {"exception": "FileNotFoundException", "message": f"File does not exist: {path}"}
        self._answer(404, {"RemoteException": missing})

    def _redirect(self, path: str, query: dict[str, str], _: bytes) -> None:
        self._answer(307, Location=f"http://{self.headers['Host']}{_DATA}{path}?{urlencode(query)}")

    _name_create = _redirect

    def _name_append(self, path: str, query: dict[str, str], body: bytes) -> None:
        self._redirect(path, query, body) if path in self.server.files else self._missing(path)

    _name_open = _name_append

    def _name_mkdirs(self, path: str, _: dict[str, str], __: bytes) -> None:
        parts = path.strip("/").split("/")
        self.server.folders |= {"/" + "/".join(parts[: end + 1]) for end in range(len(parts))}
        self._answer(200, {"boolean": True})

    def _name_rename(self, path: str, query: dict[str, str], _: bytes) -> None:
        target, files, folders = query["destination"], self.server.files, self.server.folders
        if self.server.refusing_renames or target in files or target in folders or not self._is_there(path):
            self._answer(200, {"boolean": False})
            return
        for name in [one for one in files if one == path or one.startswith(path + "/")]:
            files[target + name[len(path) :]] = files.pop(name)
        for name in [one for one in folders if one == path or one.startswith(path + "/")]:
            folders.remove(name)
            folders.add(target + name[len(path) :])
        self._answer(200, {"boolean": True})

    def _name_delete(self, path: str, _: dict[str, str], __: bytes) -> None:
        for name in [one for one in self.server.files if one == path or one.startswith(path + "/")]:
            del self.server.files[name]
        self.server.folders -= {one for one in self.server.folders if one == path or one.startswith(path + "/")}
        self._answer(200, {"boolean": True})

    def _name_getfilestatus(self, path: str, _: dict[str, str], __: bytes) -> None:
        self._answer(200, {"FileStatus": self._status(path, "")}) if self._is_there(path) else self._missing(path)

    def _name_liststatus(self, path: str, _: dict[str, str], __: bytes) -> None:
        if not self._is_there(path):
            self._missing(path)
            return
        rows = [self._status(f"{path.rstrip('/')}/{name}", name) for name in self.server.names_in(path)]
        self._answer(200, {"FileStatuses": {"FileStatus": rows}})

    def _data_create(self, path: str, _: dict[str, str], body: bytes) -> None:
        self.server.files[path] = body
        self._answer(201)

    def _data_append(self, path: str, _: dict[str, str], body: bytes) -> None:
        self.server.files[path] += body
        self._answer(200)

    def _data_open(self, path: str, query: dict[str, str], _: bytes) -> None:
        start = int(query.get("offset", 0))
        data = self.server.files[path]
        self._answer(200, data=data[start : start + int(query.get("length", len(data)))])

    def _is_there(self, path: str) -> bool:
        return path in self.server.files or path in self.server.folders

    def _status(self, path: str, name: str) -> dict[str, Any]:
        data = self.server.files.get(path)
        return {"pathSuffix": name, "type": "FILE" if data is not None else "DIRECTORY", "length": len(data or b"")}
