"""Wireshark's programs are found as pyshark finds them, and missed with advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.capture.tools import MissingToolError, find_tool


def test_a_tool_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dumpcap").touch()
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_tool("dumpcap", "to capture") == str(tmp_path / "dumpcap")


def test_a_missing_tool_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MissingToolError, match=r"dumpcap is needed to capture and was not found.*install tshark"):
        find_tool("dumpcap", "to capture")
