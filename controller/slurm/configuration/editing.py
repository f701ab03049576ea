"""Changes of slurm.conf that leave as many of its bytes as possible, and take them back. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.slurm.configuration.conf import Setting, SlurmConf, list_items, physical_lines, read_slurm_conf

ADDED_HEADING = "# Headway (headway-setup slurm)"
"""The comment above all settings that were added on lines of their own."""
_HEADING = rf"(?m:^){re.escape(ADDED_HEADING)}\r?(?m:$)"


def with_value(conf: SlurmConf, key: str, value: str) -> SlurmConf:
    """Return the configuration with that value: where the key is set already, else on a new line of slurm.conf.

    Everything else stays byte for byte: comments, order, other keys on the line.
    """
    found = conf.find(key)
    if found is None:
        return _with_text(conf, conf.path, _added(conf.texts[conf.path], f"{key}={value}"))
    return conf if found.value == value else with_changed(conf, found, value)


def with_changed(conf: SlurmConf, setting: Setting, value: str) -> SlurmConf:
    """Return the configuration with another value of that setting, quoted as before."""
    block = block_of(conf, setting)

    def replaced(found: re.Match[str]) -> str:
        quote = '"' if re.search(r"\s", value) else found[2]
        return f"{found[1]}{quote}{value}{quote}"

    changed, count = _pattern(setting).subn(replaced, block)
    if count == 0:
        raise _not_safe(setting, f"set it to {value} by hand")
    return with_block(conf, setting, changed)


def without(conf: SlurmConf, setting: Setting) -> SlurmConf:
    """Return the configuration without that setting; its line goes too when nothing else is on it."""
    block = block_of(conf, setting)
    pattern = re.compile(r"[ \t]*" + _pattern(setting).pattern, re.IGNORECASE)
    changed, count = pattern.subn("", block)
    if count == 0:
        raise _not_safe(setting, "remove it by hand")
    return with_block(conf, setting, changed.lstrip(" \t") if changed.strip(" \t\r\n\\") else "")


def block_of(conf: SlurmConf, setting: Setting) -> str:
    """Return the physical lines of a setting, with everything else that is on them."""
    return "".join(physical_lines(conf.texts[setting.path])[setting.first_line : setting.last_line + 1])


def with_block(conf: SlurmConf, setting: Setting, block: str) -> SlurmConf:
    """Return the configuration with other physical lines in the place of those of a setting."""
    lines = physical_lines(conf.texts[setting.path])
    text = "".join([*lines[: setting.first_line], block, *lines[setting.last_line + 1 :]])
    return _with_text(conf, setting.path, text)


def without_heading(conf: SlurmConf, *, newline_was_added: bool) -> SlurmConf:
    """Return the configuration without the heading and the empty line before it.

    `newline_was_added`: the text before the heading had no newline at its end when the heading was added. It has none again, if
    nothing comes after it.
    """
    for path, text in conf.texts.items():
        found = re.search(rf"((?<![^\n])\r?\n)?{_HEADING}\n?", text)
        if found is None:
            continue
        before, after = text[: found.start()], text[found.end() :]
        if newline_was_added and not after:
            before = before.removesuffix("\n")
        conf = _with_text(conf, path, before + after)
    return conf


def has_heading(text: str) -> bool:
    """Return whether a line of the text is the heading; the same words behind a setting are a comment of the operator."""
    return re.search(_HEADING, text) is not None


def below_heading(conf: SlurmConf, setting: Setting) -> bool:
    """Return whether a setting is one of the lines that directly follow the heading."""
    lines = [line.rstrip("\r\n") for line in physical_lines(conf.texts[setting.path])]
    if ADDED_HEADING not in lines:
        return False
    first = lines.index(ADDED_HEADING) + 1
    return first <= setting.first_line and all(lines[first : setting.first_line])


def with_item(value: str, item: str) -> str:
    """Return the value with that item at its end; unchanged when it contains the item."""
    items = list_items(value)
    return value if item in items else ",".join((*items, item))


def without_item(value: str, item: str) -> str:
    """Return the value without the last of its items that is this one; everything else stays as it is written."""
    parts = value.split(",")
    for at in range(len(parts) - 1, -1, -1):
        if parts[at].strip() == item:
            return ",".join(parts[:at] + parts[at + 1 :])
    return value


def _with_text(conf: SlurmConf, path: Path, text: str) -> SlurmConf:
    texts = {**conf.texts, path: text}
    return read_slurm_conf(conf.path, lambda wanted: _from(texts, wanted))


def _from(texts: Mapping[Path, str], path: Path) -> str:
    try:
        return texts[path]
    except KeyError:
        raise FileNotFoundError(path) from None


def _pattern(setting: Setting) -> re.Pattern[str]:
    """Return a pattern for `Key=Value`, with `Key=` in group 1 and the opening quote in group 2."""
    # A continuation may break a value over physical lines; it is part of the old value.
    old = r"(?:\\[ \t]*+\r?\n)?".join(re.escape(character) for character in setting.value)
    key = re.escape(setting.key)
    return re.compile(rf"(?<![\w.])({key}\s*=\s*)(\"?){old}\"?(?=\s|\\|#|$)", re.IGNORECASE)


def _not_safe(setting: Setting, mend: str) -> ConfigurationError:
    return ConfigurationError(
        f"{setting.path}: line {setting.first_line + 1}: {setting.key} is written in a way that cannot be edited safely; {mend}"
    )


def _added(text: str, line: str) -> str:
    """Return the text with another line at its end, under the heading of all added settings."""
    if text and not text.endswith("\n"):
        text += "\n"
    if not has_heading(text):
        text += f"\n{ADDED_HEADING}\n"
    return f"{text}{line}\n"
