"""Wireshark's programs are found as pyshark finds them; a program in tshark's place: what it takes, how it ends."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from mqttscope.capture.tshark import MAX_COMPLAINTS, MissingToolError, TsharkProcess, decrypting, find_tool, find_tshark
from mqttscope.net.frame import Frame


def test_a_tool_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dumpcap").touch()
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_tool("dumpcap", "to capture") == str(tmp_path / "dumpcap")


def test_a_missing_tool_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MissingToolError, match=r"dumpcap is needed to capture and was not found.*install tshark"):
        find_tool("dumpcap", "to capture")


@pytest.mark.tshark
def test_ports_keys_and_what_would_look_inside() -> None:
    words = decrypting(find_tshark(), "-", "keys.txt", {8883, 443})

    assert words[1:6] == ["-n", "-r", "-", "-o", "tls.keylog_file:keys.txt"]
    assert [one for one in words if "port" in one] == [
        "tcp.port==443,tls", "tls.port==443,data", "tcp.port==8883,tls", "tls.port==8883,data",
    ]  # fmt: skip
    hidden = {words[at + 1] for at, one in enumerate(words) if one == "--disable-protocol"}
    assert {"http", "http2", "mqtt", "websocket"} < hidden


def test_a_tshark_that_cannot_be_asked() -> None:
    assert decrypting("/nowhere/tshark", "a", "b", ())[0] == "/nowhere/tshark"


FRAME = Frame(0, 0, 1, bytes(1_000), 1_000, "")


def running(program: str) -> TsharkProcess:
    return TsharkProcess([sys.executable, "-c", program])


def all_of_it(process: TsharkProcess) -> bytes:
    """Everything that it says until it ends, while it is given what it takes."""
    said, until = b"", time.monotonic() + 30
    while time.monotonic() < until:
        process.push()
        if not process.behind:
            process.end_input()
        process.listen()
        piece = process.read()
        if piece is None:
            time.sleep(0.005)
        elif piece:
            said += piece
        else:
            return said
    raise AssertionError("it did not end")


def test_what_is_fed_arrives_whole_and_in_order() -> None:
    process = running("import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)")
    for number in range(500):
        process.feed(Frame(0, number, 1, number.to_bytes(2, "big") * 500, 1_000, ""))

    said = all_of_it(process)
    places = [said.find(number.to_bytes(2, "big") * 500) for number in range(1, 500)]
    assert -1 not in places
    assert places == sorted(places)
    process.close()


def test_one_that_reads_nothing_holds_nobody_up() -> None:
    process = running("import time; time.sleep(60)")
    for _ in range(2_000):
        process.feed(FRAME)
    process.push()

    assert process.behind
    assert process.read() is None
    # Who waits for it waits until it has ended.
    assert not process.ended
    process.close()
    assert process.ended


def test_its_last_words_and_its_end() -> None:
    process = running(
        "import sys; print('Running as user root', file=sys.stderr); "
        "print('tshark: that is no capture', file=sys.stderr); "
        "print('12 packets captured', file=sys.stderr); sys.exit(2)"
    )
    assert all_of_it(process) == b""
    assert process.give_up(10) == ("; exit code 2", ": that is no capture")
    process.close()


def test_one_that_stays_is_ended() -> None:
    process = running("import time; time.sleep(60)")
    assert process.give_up(0.01) == ("", "")
    assert process.ended
    process.close()


def test_of_many_complaints_the_last_are_kept() -> None:
    process = running("import sys; print('x' * 1_000_000 + 'end', file=sys.stderr)")
    assert all_of_it(process) == b""
    _, last = process.give_up(10)
    assert last.endswith("xend")
    assert len(last) <= MAX_COMPLAINTS + 2
    process.close()
