"""Texts of errors: they can be printed, also where they name a path or quote a text that is no UTF-8."""

import copy
import json
from pathlib import Path

import pytest

from controller.base.errors import ConfigurationError, HeadwayError, PreemptionRefusedError, SlurmError
from controller.slurm.configuration.conf import read_slurm_conf
from slurm.setup.files import read_installed


@pytest.mark.parametrize("kind", [HeadwayError, ConfigurationError, SlurmError])
def test_bytes_that_are_no_utf8_are_shown_escaped(kind: type[HeadwayError]) -> None:
    error = kind("/etc/é/\udcff.conf: no such file")

    assert str(error) == r"/etc/é/\udcff.conf: no such file"
    assert str(copy.copy(error)) == str(error)
    assert str(kind()) == ""


def test_an_error_of_two_values_keeps_them() -> None:
    error = PreemptionRefusedError("1\udcff", "does not run")

    assert (str(error), error.why_not) == (r"job 1\udcff does not run", "does not run")


@pytest.mark.parametrize(
    "include", [b"more\xff.conf", b"x" * 300 + b"\xff", b"\xff" * 5000, b"slurm\xff/", b"loop\xff.conf"]
)
def test_an_include_line_with_any_bytes_is_refused_in_words_that_can_be_printed(tmp_path: Path, include: bytes) -> None:
    path = tmp_path / "slurm.conf"
    path.write_bytes(b"ClusterName=lab\ninclude " + include + b"\n")
    if include.startswith(b"loop"):
        (tmp_path / "loop\udcff.conf").write_bytes(b"include " + include + b"\n")

    with pytest.raises(ConfigurationError) as found:
        read_slurm_conf(path)

    text = str(found.value)
    assert text.encode().decode() == text
    assert json.loads(json.dumps({"error": text}, ensure_ascii=False).encode())["error"] == text


def test_an_installed_file_that_cannot_be_read_is_named_in_words_that_can_be_printed(tmp_path: Path) -> None:
    folder = tmp_path / "prolog\udcff"
    folder.mkdir()

    with pytest.raises(ConfigurationError, match=r"prolog\\udcff: cannot be read"):
        read_installed(folder)
