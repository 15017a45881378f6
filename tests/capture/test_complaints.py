"""What dumpcap says, told with cause and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.capture.complaints import BadCaptureFilterError, explain

DENIED = (
    "Capturing on 'Loopback: lo'\ndumpcap: You do not have permission to capture on device \"lo\".\n"
    "(socket: Operation not permitted)\nPlease check to make sure you have sufficient permissions.\n"
)
ABSENT = "Capturing on 'nosuch0'\ndumpcap: There is no device named \"nosuch0\".\n(No such device exists)\n"
DOWN = "Capturing on 'tap9'\ndumpcap: Device \"tap9\" is not up.\n(That device is not up)\n"
GONE = 'File: -\ndumpcap: The network adapter "tap9" is no longer attached; the capture has stopped.\n'
FILTER = (
    "Capturing on 'Loopback: lo'\ndumpcap: Invalid capture filter \"bad (\" for interface 'lo'.\n\n"
    "That string isn't a valid capture filter (can't parse filter expression: syntax error).\n"
    "See the User's Guide for a description of the capture filter syntax.\n"
)


@pytest.mark.parametrize(
    ("said", "names", "told"),
    [
        (DENIED, ("lo",), ("no permission to capture from lo", "wireshark", "setcap cap_net_raw,cap_net_admin=eip")),
        (ABSENT, ("lo", "nosuch0"), ("there is no interface nosuch0", "--list-interfaces")),
        (DOWN, ("tap9",), ("interface tap9 is down", "ip link set tap9 up")),
        (GONE, ("tap9",), ("went down or was removed", "ip link set tap9 up")),
        ("dumpcap: something new\nfor you\n", ("lo",), ("dumpcap says: something new for you",)),
        ("", ("lo",), ("ended with exit code 7 and said nothing",)),
    ],
)
def test_cause_and_remedy(said: str, names: tuple[str, ...], told: tuple[str, ...]) -> None:
    line = explain(said, "/usr/bin/env", names, code=7)

    assert all(one in line for one in told), line
    assert "\n" not in line


def test_a_bad_filter_is_the_users(tmp_path: Path) -> None:
    with pytest.raises(BadCaptureFilterError, match=r"'bad \(' is no capture filter: can't parse"):
        explain(FILTER, "dumpcap", ("lo",), code=1)


def test_a_dumpcap_that_may_not_be_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dumpcap"
    path.touch(mode=0o644)

    line = explain(f"[Errno 13] Permission denied: '{path}'", str(path), ("eth0",))

    assert line.startswith(f"no permission to run {path}, which captures from eth0")


@pytest.mark.parametrize(("code", "told"), [(-9, "was ended by SIGKILL"), (0, "ended by itself")])
def test_an_end_without_words(code: int, told: str) -> None:
    assert explain("Capturing on 'lo'\nFile: -\n", "dumpcap", ("lo",), code=code) == f"dumpcap: {told}"


def test_output_that_is_no_capture() -> None:
    line = explain("", "/opt/dumpcap", ("lo",), code=0, fault="is not a capture file")

    assert line.startswith("dumpcap wrote what is no capture: it is not a capture file")
