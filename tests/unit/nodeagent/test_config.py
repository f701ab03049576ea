"""Settings: an error names the file, the key and the correction."""

import pytest

from nodeagent.config import load_settings
from nodeagent.errors import ConfigurationError


def written(tmp_path, text):
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def test_the_address_is_all_that_must_be_set(tmp_path):
    settings = load_settings(written(tmp_path, 'controller_address = "head:9342"'))
    assert settings.controller_address == ("head:9342",)
    assert settings.report_interval_s == 5.0
    assert str(settings.job_socket) == "/run/headway-agent/job.sock"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'controller_address: missing; add it, for example controller_address = "headnode:9342"'),
        ('controller_address = "h:1"\nreport_interval = 1', "report_interval: no such key; keys are ca_file, "),
        ('controller_address = "h:1"\nidentity = "trust"', "identity: Input should be 'automatic', 'cgroup' or"),
        ('controller_address = "h:1"\nreport_interval_s = 0', "report_interval_s: Input should be greater"),
        ("controller_address =", "not valid TOML"),
        ('controller_address = "h:1"\nmetrics_file = "/run/x.txt"', "must be an absolute path that ends in .prom"),
    ],
)
def test_an_error_names_file_key_and_mend(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as error:
        load_settings(path)
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)


def test_a_missing_file_and_an_unreadable_one(tmp_path):
    with pytest.raises(ConfigurationError, match="no such file; write one"):
        load_settings(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_settings(tmp_path)
