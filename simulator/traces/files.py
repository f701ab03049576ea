"""Files as blocks of decompressed bytes: plain, gzip and zstd, with bounded memory for any content."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from simulator.errors import TraceError

BLOCK_BYTES = 1 << 17
"""Size of a block: small enough for the caches of one core."""
MOST_BYTES = 512 << 20
"""Maximum decompressed text: about eight million jobs, some 2 GB as columns. A larger file is read with a limit, or refused."""
_ZSTD_STEP_BYTES = 1 << 10
"""Compressed bytes that are decompressed at once: every four can become a block of 128 KiB, which bounds the memory."""
GZIP_MAGIC, ZSTD_MAGIC, PARQUET_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
UNPACK_AGAIN = "the file is cut short or damaged: copy or download it again"


def blocks(path: Path, *, limited: bool = False) -> Iterator[bytes]:
    """Yield the decompressed content in blocks. Unless `limited`, a file too large for memory is refused."""
    total = 0
    for block in _unpacked(path, limited=limited):
        total += len(block)
        if total > MOST_BYTES and not limited:
            raise _too_large(path, f"more than {_human(MOST_BYTES)} of text")
        yield block


def first_bytes(path: Path, count: int = 8) -> bytes:
    """Return the first bytes of the file."""
    with _opened(path) as raw:
        return raw.read(count)


def _unpacked(path: Path, *, limited: bool) -> Iterator[bytes]:
    magic = first_bytes(path)
    suffix = path.suffix.lower()
    if not magic:
        raise TraceError("the file is empty", mend="give a trace with a header line and a line for each job", path=path)
    if magic.startswith(GZIP_MAGIC):
        return _gzip_blocks(path)
    if magic.startswith(ZSTD_MAGIC):
        return _zstd_blocks(path)
    if suffix in {".gz", ".zst"}:
        raise TraceError(
            f"is named {suffix} but contains something else", mend="rename it, or pack it again", path=path
        )
    if not limited and path.stat().st_size > MOST_BYTES:
        raise _too_large(path, _human(path.stat().st_size))
    return _plain_blocks(path)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        mend = "give the path of a file" if path.is_dir() or not path.exists() else "make it readable"
        raise TraceError(f"cannot be opened: {error.strerror}", mend=mend, path=path) from error


def _plain_blocks(path: Path) -> Iterator[bytes]:
    with _opened(path) as raw:
        while block := raw.read(BLOCK_BYTES):
            yield block


def _gzip_blocks(path: Path) -> Iterator[bytes]:
    with _opened(path) as raw, gzip.GzipFile(fileobj=raw) as unpacked:
        while True:
            try:
                block = unpacked.read(BLOCK_BYTES)
            except EOFError:
                raise TraceError("the gzip data end too early", mend=UNPACK_AGAIN, path=path) from None
            except (gzip.BadGzipFile, zlib.error) as error:
                raise TraceError(f"the gzip data are damaged ({error})", mend=UNPACK_AGAIN, path=path) from error
            if not block:
                return
            yield block


def _zstd_blocks(path: Path) -> Iterator[bytes]:
    """Yield decompressed blocks, frame after frame. zstandard's reader does not serve: it accepts a truncated frame as complete."""
    try:
        import zstandard
    except ImportError:
        mend = "pip install 'headway-scheduler[sim]', or unpack the file"
        raise TraceError("needs the package zstandard", mend=mend, path=path) from None
    with _opened(path) as raw:
        frame = zstandard.ZstdDecompressor().decompressobj()
        gathered = io.BytesIO()
        started = False
        while step := raw.read(_ZSTD_STEP_BYTES):
            while step:
                try:
                    gathered.write(frame.decompress(step))
                except zstandard.ZstdError as error:
                    raise TraceError(f"the zstd data are damaged ({error})", mend=UNPACK_AGAIN, path=path) from error
                started, step = True, b""
                if frame.eof:
                    step, started = frame.unused_data, False
                    frame = zstandard.ZstdDecompressor().decompressobj()
            if gathered.tell() >= BLOCK_BYTES:
                yield gathered.getvalue()
                gathered = io.BytesIO()
        if started:
            raise TraceError("the zstd data end too early", mend=UNPACK_AGAIN, path=path)
        if gathered.tell():
            yield gathered.getvalue()


def _too_large(path: Path, size: str) -> TraceError:
    return TraceError(
        f"too large for memory ({size})", mend="take its first rows with --limit N, or split it", path=path
    )


def _human(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
