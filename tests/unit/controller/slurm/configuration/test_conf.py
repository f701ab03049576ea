"""slurm.conf: read as Slurm reads it, changed where Slurm would see the change."""

from pathlib import Path

import pytest

from controller.base.errors import ConfigurationError
from controller.slurm.configuration.conf import SlurmConf, read_slurm_conf
from controller.slurm.configuration.editing import ADDED_HEADING, with_item, with_value, without_heading

CONF = Path("/etc/slurm/slurm.conf")


def read(main: str, **included: str) -> SlurmConf:
    files = {CONF: main} | {CONF.parent / f"{name}.conf": text for name, text in included.items()}

    def text(path: Path) -> str:
        try:
            return files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    return read_slurm_conf(CONF, text)


def test_keys_do_not_mind_case_and_values_do() -> None:
    assert read("CLUSTERNAME=Lab\n").value("ClusterName") == "Lab"


def test_several_settings_share_a_line() -> None:
    conf = read("SlurmctldDebug=info   SlurmdDebug = debug\n")

    assert (conf.value("slurmctlddebug"), conf.value("slurmddebug")) == ("info", "debug")


def test_comments_are_cut_unless_escaped() -> None:
    conf = read("# JobSubmitPlugins=lua\nClusterName=a#b\nTaskProlog=/x\\#y # why\n")

    assert (conf.value("JobSubmitPlugins"), conf.value("ClusterName"), conf.value("TaskProlog")) == ("", "a", "/x#y")


def test_a_backslash_continues_the_line() -> None:
    conf = read("SchedulerParameters=a=1,\\\nb=2,\\\nc=3\nClusterName=x\n")

    assert conf.value("SchedulerParameters") == "a=1,b=2,c=3"
    assert conf.value("ClusterName") == "x"


def test_a_continuation_inside_a_comment_is_none() -> None:
    assert read("ClusterName=x # and \\\nTaskProlog=/y\n").value("TaskProlog") == "/y"


def test_quotes_belong_to_the_file_and_not_to_the_value() -> None:
    assert read('LaunchParameters="a b"\n').value("LaunchParameters") == "a b"


def test_of_several_the_last_counts() -> None:
    assert read("TaskProlog=/one\nTaskProlog=/two\n").value("TaskProlog") == "/two"


def test_keys_of_nodes_and_partitions_are_no_settings() -> None:
    conf = read(
        "NodeName=n1 State=UNKNOWN\nPartitionName=DEFAULT Shared=NO\nPartitionName=dl Nodes=n1\nPartitionName=gpu\n"
    )

    assert conf.find("State") is None
    assert conf.partitions == ("dl", "gpu")


def test_included_files_are_read_where_they_stand() -> None:
    conf = read("ClusterName=lab\nTaskProlog=/one\nInclude %c.conf\nEpilog=/e\n", lab="TaskProlog=/two\n")

    setting = conf.find("TaskProlog")
    assert setting is not None
    assert (setting.value, setting.path) == ("/two", CONF.parent / "lab.conf")
    assert conf.value("Epilog") == "/e"


def test_bytes_that_are_no_utf_8_hide_no_setting(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_bytes(b"# caf\xe9\nClusterName=lab # \xff\r\nEpilog=/opt/\xe9\n")

    conf = read_slurm_conf(path)

    assert (conf.value("ClusterName"), conf.value("Epilog")) == ("lab", "/opt/\udce9")
    assert conf.texts[path].encode("utf-8", "surrogateescape") == path.read_bytes()


def test_a_missing_file_is_named_with_the_one_that_includes_it() -> None:
    with pytest.raises(ConfigurationError, match=r"nodes\.conf: no such file, included by /etc/slurm/slurm\.conf"):
        read("include nodes.conf\n")


def test_an_included_path_with_a_null_byte_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"slurm\.conf: includes a path with a null byte"):
        read_slurm_conf(CONF, lambda path: "Include a\0b.conf\n" if path == CONF else path.read_text())


def test_files_that_include_each_other_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"a\.conf: includes .*slurm\.conf, which includes it in turn"):
        read("include a.conf\n", a="include slurm.conf\n")


def test_a_file_that_is_included_again_and_again_is_an_error() -> None:
    assert read("include a.conf\n" * 99, a="Epilog=/e\n").value("Epilog") == "/e"
    with pytest.raises(ConfigurationError, match=r"slurm\.conf: includes more than 100 files; join some of them"):
        read("include a.conf\n" * 100, a="Epilog=/e\n")


# --- editing


def test_a_value_changes_and_everything_else_stays() -> None:
    text = "# top\nClusterName=x\njobsubmitplugins = partition   # site\nNodeName=n1\n"

    assert with_value(read(text), "JobSubmitPlugins", "partition,lua").texts[CONF] == (
        "# top\nClusterName=x\njobsubmitplugins = partition,lua   # site\nNodeName=n1\n"
    )


def test_the_change_goes_into_the_file_that_counts() -> None:
    changed = with_value(read("include sched.conf\n", sched="SchedulerParameters=a\n"), "SchedulerParameters", "a,b")

    assert changed.texts[CONF] == "include sched.conf\n"
    assert changed.texts[CONF.parent / "sched.conf"] == "SchedulerParameters=a,b\n"


def test_a_value_over_several_lines_becomes_one() -> None:
    changed = with_value(read("SchedulerParameters=a,\\\nb\nClusterName=x\n"), "SchedulerParameters", "a,b,c")

    assert changed.texts[CONF] == "SchedulerParameters=a,b,c\nClusterName=x\n"


def test_another_key_with_the_same_value_on_the_line_stays() -> None:
    changed = with_value(read("Prolog=/x Epilog=/x MyEpilog=/x\n"), "Epilog", "/y")

    assert changed.texts[CONF] == "Prolog=/x Epilog=/y MyEpilog=/x\n"


def test_new_settings_go_to_the_end_under_one_heading() -> None:
    changed = with_value(with_value(read("ClusterName=x"), "A", "1"), "B", "2")

    assert changed.texts[CONF] == "ClusterName=x\n\n# Headway (headway-setup slurm)\nA=1\nB=2\n"


@pytest.mark.parametrize("mark", [f"A=1 {ADDED_HEADING}", f"{ADDED_HEADING}, by us", f"#{ADDED_HEADING}"])
def test_the_words_of_the_heading_on_another_line_are_an_operators_comment(mark: str) -> None:
    text = f"ClusterName=x\n{mark}\nNodeName=n1\n"
    added = with_value(read(text), "B", "2")

    assert added.texts[CONF] == f"{text}\n{ADDED_HEADING}\nB=2\n"
    assert without_heading(read(text), newline_was_added=False).texts[CONF] == text
    assert without_heading(added, newline_was_added=False).texts[CONF] == f"{text}B=2\n"


def test_a_value_that_is_there_changes_nothing() -> None:
    conf = read("A=1\n")

    assert with_value(conf, "a", "1") is conf


@pytest.mark.parametrize(("value", "result"), [("", "lua"), ("a", "a,lua"), ("lua,a", "lua,a"), ("a, b", "a,b,lua")])
def test_an_item_is_added_once(value: str, result: str) -> None:
    assert with_item(value, "lua") == result
