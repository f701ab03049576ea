"""Make the generated code beside the .proto files, or check that it is up to date.

`python -m protos.generate` writes, `python -m protos.generate --check` compares and fails when something is stale.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO_FOLDER = Path("protos/headway/v1")


def generate(target: Path) -> list[Path]:
    """Generate below `target`, and return the paths of the files made, relative to it."""
    from grpc_tools import _proto as well_known
    from grpc_tools import protoc

    sources = [str(path.relative_to(ROOT)) for path in sorted((ROOT / PROTO_FOLDER).glob("*.proto"))]
    plugin = Path(sys.executable).with_name
    status = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{Path(well_known.__path__[0])}",
            f"--plugin=protoc-gen-mypy={plugin('protoc-gen-mypy')}",
            f"--plugin=protoc-gen-mypy_grpc={plugin('protoc-gen-mypy_grpc')}",
            f"--python_out={target}",
            f"--grpc_python_out={target}",
            f"--mypy_out=quiet:{target}",
            f"--mypy_grpc_out=quiet:{target}",
            *sources,
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}")
    return sorted(
        path.relative_to(target) for path in (target / PROTO_FOLDER).rglob("*_pb2*") if "__pycache__" not in path.parts
    )


def stale_files() -> list[Path]:
    """Generated files that are missing, differ from what the .proto files give, or have no .proto file any more."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        fresh = generate(target)
        stale = [
            path
            for path in fresh
            if not (ROOT / path).is_file() or (ROOT / path).read_bytes() != (target / path).read_bytes()
        ]
    present = {
        path.relative_to(ROOT) for path in (ROOT / PROTO_FOLDER).rglob("*_pb2*") if "__pycache__" not in path.parts
    }
    return stale + sorted(present - set(fresh))


def main() -> None:
    """Command line: write, or with --check only compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when something is stale")
    if not parser.parse_args().check:
        generate(ROOT)
        return
    stale = stale_files()
    if stale:
        names = ", ".join(str(path) for path in stale)
        raise SystemExit(f"generated code does not belong to the .proto files: {names}; run `make proto` and commit")


if __name__ == "__main__":
    main()
