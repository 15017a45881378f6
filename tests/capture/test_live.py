"""Live captures: real frames of loopback, and every way in which dumpcap can fail."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqttscope.capture import live
from mqttscope.capture.live import (
    BadCaptureFilterError,
    CannotCaptureError,
    DropCounter,
    LiveCapture,
    NotPermittedError,
    explain,
    interfaces,
    is_up,
)
from mqttscope.capture.tshark import MissingToolError
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, Frame
from tests.cli.running import capture as recorded
from tests.live import Talk, cat, need_capture, replace_dumpcap, say
from tests.proxy.rig import need_address

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
    ("expected", "names", "texts"),
    [
        (ABSENT, ("lo", "nosuch0"), ("interface nosuch0 does not exist", "--list-interfaces")),
        (DOWN, ("tap9",), ("interface tap9 is down", "ip link set tap9 up")),
        (GONE, ("tap9",), ("went down or was removed", "ip link set tap9 up")),
        ("dumpcap: something new\nfor you\n", ("lo",), ("dumpcap reports: something new for you",)),
        ("", ("lo",), ("ended with exit code 7 and no message",)),
    ],
)
def test_cause_and_remedy(expected: str, names: tuple[str, ...], texts: tuple[str, ...]) -> None:
    line = explain(expected, "/usr/bin/env", names, code=7)

    assert all(text in line for text in texts), line
    assert "\n" not in line


def test_a_missing_right_is_an_error_with_its_cause() -> None:
    with pytest.raises(NotPermittedError) as caught:
        explain(DENIED, "/usr/bin/env", ("lo",), code=7)
    assert (caught.value.cause, caught.value.dumpcap) == ("no permission to capture from lo", "/usr/bin/env")
    for text in ("no permission to capture from lo", "wireshark", "setcap cap_net_raw,cap_net_admin=eip /usr/bin/env"):
        assert text in str(caught.value)
    assert "\n" not in str(caught.value)


MACOS = """\
1. en0\t\tWi-Fi\t0\tfe80::1,192.0.2.4\tnetwork
2. utun3\t\t\t0\t\tnetwork
3. lo0\t\tLoopback\t0\t127.0.0.1\tloopback
4. bridge0\t\tThunderbolt Bridge\t0\t\tnetwork
"""
FREEBSD = "1. em0\t\t\t0\t192.0.2.4\tnetwork\n2. lo0\t\t\t0\t127.0.0.1\tloopback\n"
WINDOWS = """\
1. \\Device\\NPF_{0A1B}\t\tEthernet 2\t0\t192.0.2.4\tnetwork
2. \\Device\\NPF_Loopback\t\tAdapter for loopback traffic capture\t0\t127.0.0.1\tloopback
"""


@pytest.mark.parametrize(
    ("expected", "names", "loopback"),
    [
        (MACOS, ["en0", "utun3", "lo0", "bridge0"], "lo0"),
        (FREEBSD, ["em0", "lo0"], "lo0"),
        (WINDOWS, ["\\Device\\NPF_{0A1B}", "\\Device\\NPF_Loopback"], "\\Device\\NPF_Loopback"),
    ],
)
def test_interfaces_of_other_systems(
    expected: str, names: list[str], loopback: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumpcap = tmp_path / "dumpcap"
    (tmp_path / "said").write_text(expected, "utf-8")
    dumpcap.write_text(f"#!/bin/sh\n{cat(tmp_path / 'said')}\n", "utf-8")
    dumpcap.chmod(0o755)
    monkeypatch.setattr(live, "find_dumpcap", lambda: str(dumpcap))

    capture_interfaces = interfaces()

    assert [interface.name for interface in capture_interfaces] == names
    assert [interface.name for interface in capture_interfaces if interface.loopback] == [loopback]
    capture = LiveCapture(names)
    assert capture.name == ",".join(names)
    assert all(map(is_up, names))


def test_another_system_brings_interfaces_up_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "ifconfig tap9 up" in explain(DOWN, "/usr/bin/env", ("tap9",))
    assert "ifconfig utun3 up" in live.went_away("utun3")


def test_windows_says_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CannotCaptureError, match=r"dumpcap -i 1 -w - \| mqttscope inspect -"):
        LiveCapture(["Ethernet 2"])


def test_a_bad_filter_is_the_users(tmp_path: Path) -> None:
    with pytest.raises(BadCaptureFilterError, match=r"'bad \(' is not a capture filter: can't parse"):
        explain(FILTER, "dumpcap", ("lo",), code=1)


def test_a_dumpcap_that_may_not_be_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dumpcap"
    path.touch(mode=0o644)

    with pytest.raises(NotPermittedError, match=f"^no permission to run {path}, which captures from eth0"):
        explain(f"[Errno 13] Permission denied: '{path}'", str(path), ("eth0",))


@pytest.mark.parametrize(("code", "expected"), [(-9, "was ended by SIGKILL"), (0, "ended by itself")])
def test_an_end_without_words(code: int, expected: str) -> None:
    assert explain("Capturing on 'lo'\nFile: -\n", "dumpcap", ("lo",), code=code) == f"dumpcap: {expected}"


def test_output_that_is_no_capture() -> None:
    line = explain("", "/opt/dumpcap", ("lo",), code=0, fault="is not a capture file")

    assert line.startswith("the output of dumpcap is not a capture: it is not a capture file")


PACKET_SOCKET = """if True:
    import socket, struct, sys
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(263, 10, 2)
    # The time comes back in no other way than by what the kernel makes of it: a ring it refuses shows the change.
    request = struct.pack("=7I", 1 << 18, 4, 1 << 18, 4, 250, 0, 0)
    made.setsockopt(263, 5, request)
    print("ring", flush=True)
    sys.exit(5)
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, preexec_fn=live.trace_me)


@pytest.fixture(autouse=True)
def _where_it_can_be_done() -> None:
    if not live.can_shorten_time_out():
        pytest.skip("needs root on Linux, and ptrace")


def test_a_ring_is_made_prompt_and_the_program_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TRACE_SECONDS", 20.0)  # a busy machine may need more than the usual ones for Python
    running = start(sys.executable, "-S", "-c", PACKET_SOCKET)

    number = live.shorten_time_out(running.pid, 1)
    out, _ = running.communicate(timeout=20)

    if out != b"ring\n":
        pytest.skip("no packet sockets here")
    assert number == 1
    assert running.returncode == 5


@pytest.mark.parametrize(
    ("seconds", "traced", "script", "code"),
    [
        pytest.param(live.TRACE_SECONDS, True, "echo hello; exit 7", 7, id="it ends without a ring"),
        pytest.param(0.2, True, "sleep 0.6; echo hello", 0, id="it makes no ring in time"),
        pytest.param(0.1, False, "sleep 0.5; echo hello", 0, id="it could not be traced"),
    ],
)
def test_a_program_without_a_ring_runs_on(
    seconds: float, traced: bool, script: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "TRACE_SECONDS", seconds)
    words = ["/bin/sh", "-c", script]
    running = start(*words) if traced else subprocess.Popen(words, stdout=subprocess.PIPE)

    assert live.shorten_time_out(running.pid, 1) == 0
    assert running.communicate(timeout=20)[0] == b"hello\n"
    assert running.returncode == code


def test_a_program_that_is_not_there() -> None:
    assert live.shorten_time_out(os.getpid(), 0) == 0


OPENS = """if True:
    import socket, sys
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    made.bind(("lo", 3))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    print("open", flush=True)
    sys.stdin.read()
"""


def test_what_cannot_be_looked_into_counts_nothing() -> None:
    counter = DropCounter(2**22 + 1)

    assert len(counter) == 0
    assert counter.read() == (0, 0)
    counter.close()


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="needs root on Linux")
def test_frames_and_drops_of_another_process_are_counted_once() -> None:
    running = subprocess.Popen([sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout is not None
    if running.stdout.readline() != b"open\n":
        running.communicate()
        pytest.skip("no packet sockets here")
    counter = DropCounter(running.pid)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to,
    ):
        to.bind(("127.0.0.1", 0))
        for _ in range(200):
            sender.sendto(bytes(1_000), to.getsockname())

    if not len(counter):
        running.communicate()
        pytest.skip("sockets of other processes cannot be had here")
    received, dropped = counter.read()
    counter.close()
    running.communicate()

    assert received >= 200
    assert 0 < dropped <= received


READY = "echo File: - >&2"


def gather(capture: LiveCapture, items: list[Frame | CaptureNotice] | None = None) -> list[Frame | CaptureNotice]:
    """All that a capture gives; ``items`` has it as it comes."""
    items = [] if items is None else items
    for item in capture.frames():
        items += (item,)
    return items


def has_come(items: list[Frame | CaptureNotice], data: bytes) -> bool:
    """Whether a frame with some bytes is among them."""
    return any(isinstance(item, Frame) and data in item.data for item in items)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A function that puts a script in dumpcap's place."""
    return lambda script: replace_dumpcap(tmp_path, monkeypatch, script)


def test_interfaces_are_those_that_dumpcap_names(fake) -> None:  # type: ignore[no-untyped-def]
    fake(r"printf '1. eth0\t\t\t0\t10.0.0.4,fd00::2\tnetwork\t\n2. lo\t\tLoopback\t0\t127.0.0.1\tloopback\t\n'")

    first, second = interfaces()

    assert (first.name, first.addresses, first.loopback) == ("eth0", ("10.0.0.4", "fd00::2"), False)
    assert (second.name, second.description, second.loopback) == ("lo", "Loopback", True)


def test_interfaces_that_cannot_be_listed(fake) -> None:  # type: ignore[no-untyped-def]
    fake("echo 'dumpcap: You do not have permission' >&2; exit 1")

    with pytest.raises(CannotCaptureError, match="no permission to capture"):
        interfaces()


def test_no_dumpcap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MissingToolError, match="install tshark"):
        LiveCapture(["lo"])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'dumpcap: You do not have permission to capture' >&2; exit 1", "no permission to capture from eth9"),
        ("echo 'dumpcap: There is no device named \"eth9\".' >&2; exit 1", "interface eth9 does not exist"),
        ("echo 'dumpcap: Device \"eth9\" is not up.' >&2; exit 1", "interface eth9 is down"),
        ("echo garbage that is no capture", "is not a capture file"),
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "SIGKILL"),
    ],
)
def test_a_capture_that_does_not_begin(script: str, expected: str, fake) -> None:  # type: ignore[no-untyped-def]
    fake(script)

    with pytest.raises(CannotCaptureError, match=expected):
        gather(LiveCapture(["eth9"]))


def test_a_dumpcap_that_may_not_be_run(fake) -> None:  # type: ignore[no-untyped-def]
    path = fake("exit 0")
    path.chmod(0o644)

    with pytest.raises(CannotCaptureError, match=f"no permission to run {path}"):
        gather(LiveCapture(["eth9"]))


def test_a_bad_capture_filter(fake) -> None:  # type: ignore[no-untyped-def]
    fake("printf 'dumpcap: Invalid capture filter \"x\" for interface lo.\\n\\nThat is none (why).\\n' >&2; exit 1")

    with pytest.raises(BadCaptureFilterError, match="'x' is not a capture filter: why"):
        gather(LiveCapture(["lo"], capture_filter="x"))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"{READY}; {{cat}}; echo 'dumpcap: The network adapter \"eth9\" is no longer attached;' >&2; exit 0",
         "went down or was removed"),
        (f"{READY}; {{cat}} | head -c 1500; kill -9 $$", "dumpcap: was ended by SIGKILL"),
    ],
    ids=["it is expected why", "in the middle of a frame"],
)  # fmt: skip
def test_an_end_in_the_middle_comes_after_the_frames(script: str, expected: str, fake) -> None:  # type: ignore[no-untyped-def]
    fake(script.format(cat=cat(recorded("v5-qos"))))

    *frames, error = gather(LiveCapture(["eth9"]))

    assert frames
    assert all(isinstance(frame, Frame) and frame.capture == "eth9" for frame in frames)
    assert isinstance(error, CaptureError)
    assert expected in error.message
    assert error.frames == len(frames)


def test_drops_that_only_standard_error_tells(fake) -> None:  # type: ignore[no-untyped-def]
    text = "Packets received/dropped on interface 'eth9': 40/7 (pcap:7/dumpcap:0/flushed:0/ps_ifdrop:0) (85.1%)"
    fake(f"trap 'echo \"{text}\" >&2; exit 0' INT; {READY}; {cat(recorded('v5-qos'))}; while :; do sleep 0.05; done")
    capture = LiveCapture(["eth9"])
    capture.waiting = lambda: capture.stop(settle=False) if capture.ready and not capture.stopping else None

    *_, last = gather(capture)

    assert last == CaptureDrops("eth9", 0, 40, 7)
    assert (capture.received, capture.dropped) == (40, 7)


def test_a_dumpcap_that_says_nothing_can_be_stopped(fake) -> None:  # type: ignore[no-untyped-def]
    fake("trap 'exit 0' INT; while :; do sleep 0.05; done")
    calls = 0
    capture = LiveCapture(["eth9"])

    def waiting() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            capture.stop(settle=False)

    capture.waiting = waiting

    assert gather(capture) == []
    assert calls >= 3


def test_a_dumpcap_that_does_not_end_is_killed(fake, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(live, "END_SECONDS", 0.2)
    fake(f"trap '' INT; {READY}; while :; do sleep 0.05; done")
    capture = LiveCapture(["eth9"])
    capture.waiting = lambda: capture.stop(settle=False) if capture.ready and not capture.stopping else None

    (error,) = gather(capture)

    assert isinstance(error, CaptureError)


def test_what_the_reader_raises_comes_out_and_ends_dumpcap(fake) -> None:  # type: ignore[no-untyped-def]
    fake(f"trap 'exit 0' INT; {READY}; while :; do sleep 0.05; done")

    def waiting() -> None:
        raise BrokenPipeError

    capture = LiveCapture(["eth9"], waiting=waiting)

    with pytest.raises(BrokenPipeError):
        gather(capture)
    assert capture._process is not None
    assert capture._process.returncode is not None


def test_an_interface_that_goes_down_is_noticed(fake, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    fake(f"trap 'exit 0' INT; {READY}; {cat(recorded('v5-qos'))}; while :; do sleep 0.05; done")
    monkeypatch.setattr(live, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(live, "is_up", lambda name: False)

    *_, error = gather(LiveCapture(["eth9"]))

    assert isinstance(error, CaptureError)
    assert error.message.startswith("interface eth9 went down")


@pytest.mark.parametrize("name", ["any", "nosuch9", "../net", "nflog"])
def test_what_is_no_interface_of_the_network_counts_as_up(name: str) -> None:
    assert is_up(name)


@pytest.mark.tshark
def test_frames_of_loopback_come_while_the_capture_runs() -> None:
    need_capture()
    with Talk() as talk:
        capture = LiveCapture(["lo"], capture_filter=f"tcp port {talk.port}")
        frames: list[Frame | CaptureNotice] = []
        has_published = False

        def waiting() -> None:
            nonlocal has_published
            if capture.ready and not has_published:
                has_published = True
                talk.publish("a/b")
            elif not capture.stopping and has_come(frames, b"a/b"):
                capture.stop()

        capture.waiting = waiting
        gather(capture, frames)

    assert all(isinstance(frame, Frame) for frame in frames)
    assert capture.received == len(frames)


@pytest.mark.tshark
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_frame_of_loopback_comes_once_into_the_ring(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_capture()
    need_address(address)
    counted: list[int] = []

    class Counting(DropCounter):
        def read(self) -> tuple[int, int]:
            pair = super().read()
            counted.append(pair[0])
            return pair

    monkeypatch.setattr(live, "DropCounter", Counting)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        capture = LiveCapture(["lo"], capture_filter=f"tcp port {listener.getsockname()[1]}")

        asked = 0
        items: list[Frame | CaptureNotice] = []

        def waiting() -> None:
            nonlocal asked
            # Once the counter is there: it asks for the frames to come once.
            if counted and not asked:
                asked = len(counted)
                client = socket.create_connection(listener.getsockname()[:2])
                server, _ = listener.accept()
                for number in range(20):
                    say(client, server, b"there%d" % number)
                    say(server, client, b"back%d" % number)
                client.close()
                server.close()
            # dumpcap asks at its end, and then there is nothing more to count.
            elif len(counted) > asked + 10 and has_come(items, b"back19") and not capture.stopping:
                capture.stop()

        monkeypatch.setattr(live, "LINK_SECONDS", 0.05)
        capture.waiting = waiting
        frames = [item for item in gather(capture, items) if isinstance(item, Frame)]

    if not sum(counted):
        pytest.skip("sockets of other processes cannot be had here")
    for number in range(20):
        assert [frame.data.endswith(b"there%d" % number) for frame in frames].count(True) == 1
        assert [frame.data.endswith(b"back%d" % number) for frame in frames].count(True) == 1
    # The kernel counts frames of others, too, from before libpcap set the filter.
    assert sum(counted[asked:]) == len(frames) == capture.received


@pytest.mark.tshark
@pytest.mark.skipif(os.name != "posix", reason="interfaces have other names")
def test_an_interface_that_is_not_there() -> None:
    need_capture()

    with pytest.raises(CannotCaptureError, match=r"interface nosuch9 does not exist; .*--list-interfaces"):
        gather(LiveCapture(["nosuch9"]))


def test_asking_again_ends_a_capture_no_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.capture.live.find_dumpcap", lambda: "dumpcap")
    capture = LiveCapture(["lo"])
    capture.stop()
    first = capture._stop_at
    time.sleep(0.01)
    capture.stop()
    assert capture._stop_at == first

    capture.stop(settle=False)
    assert capture._stop_at < first
