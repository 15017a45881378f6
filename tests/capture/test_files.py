"""Sources: files, standard input, globs, directories, rotated sets; what is said of what cannot be read."""

from __future__ import annotations

import gzip
import io
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.files import expand, fault, identity, is_named_like_capture, is_source, links_last
from mqttscope.net.frame import CaptureError, CaptureSecrets, Frame
from tests.capture.test_pcap import Item, pcap_file, read
from tests.capture.test_pcapng import enhanced, interface, section
from tests.tables import cases_of


def capture_at(seconds: int, data: bytes = b"frame") -> bytes:
    return pcap_file([(seconds, 0, data), (seconds + 1000, 0, data)])


def names(sources: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The captures in the order they are read, each of two frames."""
    frames = list(open_capture(sources))
    assert [item.number for item in frames if isinstance(item, Frame)] == [1, 2] * (len(frames) // 2)
    return [item.capture for item in frames[::2]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own, which the test is in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


GLOBS = "x2.pcap@20 x1.pcap@30 deep/x3.pcap@10 deep/er/x4.pcap@5 y@1"
LINKS = "set/a.pcap@30 set/b.pcap@20 set/0-latest.pcap->b.pcap also->set"
ORDERS = f"""
rotated files are read in the order of their first frames
    a.pcap@30 b.pcap@10 c.pcap@20 | a.pcap b.pcap ./c.pcap | b.pcap ./c.pcap a.pcap
files that begin at the same time stay as given
    b@10 a@10 c@10 | b c a | b c a
a file named twice is read twice
    a@10 | a a | a a
a glob is expanded
    {GLOBS} | x?.pcap | x2.pcap x1.pcap
a glob of all
    {GLOBS} | * | y x2.pcap x1.pcap
globs find nothing twice
    {GLOBS} | x[12].pcap *.pcap | x2.pcap x1.pcap
a glob and a file that it finds
    {GLOBS} | x?.pcap x1.pcap | x2.pcap x1.pcap
a glob of folders
    {GLOBS} | **/*.pcap | deep/er/x4.pcap deep/x3.pcap x2.pcap x1.pcap
a path that exists is no glob
    x[12]@10 x1@10 | x[12] | x[12]
a directory under several names is read once
    {LINKS} | set ./set also set/* | set/b.pcap set/a.pcap
a file of a directory has another name
    {LINKS} | set also/a.pcap | set/b.pcap also/a.pcap
a glob finds a link
    {LINKS} | set/0* | set/0-latest.pcap
a link that is named is read under its name
    {LINKS} | set set/0-latest.pcap | set/0-latest.pcap set/a.pcap
"""


def lay_out(folder: Path, text: str) -> None:
    """Captures, with the seconds of their first frames, and links."""
    for name, at, seconds in (word.replace("->", "@").partition("@") for word in text.split()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if at and seconds.isdecimal():
            (folder / name).write_bytes(capture_at(int(seconds)))
        else:
            (folder / name).symlink_to(seconds)


@pytest.mark.parametrize(("files", "sources", "order"), cases_of(ORDERS, str, str.split, str.split))
def test_captures_in_the_order_in_which_they_are_read(
    files: str, sources: list[str], order: list[str], here: Path
) -> None:
    lay_out(here, files)

    assert names(sources) == order
    assert names([Path(source) for source in sources]) == [str(Path(name)) for name in order]


def test_directories_give_their_captures_by_content(here: Path) -> None:
    (here / "set" / "sub.pcap").mkdir(parents=True)
    (here / "set" / "sub.pcap" / "deeper.pcap").write_bytes(capture_at(1))
    (here / "set" / "README").write_text("text")
    (here / "set" / "empty").write_bytes(b"")
    (here / "set" / "notes.gz").write_bytes(gzip.compress(b"compressed text"))
    (here / "set" / "broken.gz").write_bytes(b"\x1f\x8b")
    (here / "set" / "dangling").symlink_to("nowhere")
    os.mkfifo(here / "set" / "fifo")
    (here / "set" / "capture.txt").write_bytes(capture_at(30))
    (here / "set" / "capture").write_bytes(gzip.compress(capture_at(20)))
    (here / "set" / "capture.ng").write_bytes(section() + interface() + enhanced(b"", 10) + enhanced(b"", 11))

    assert names([here / "set"])[1] == str(here / "set" / "capture.ng")
    frames = list(open_capture(["set"]))
    assert [frame.capture for frame in frames[1::2]] == ["set/capture.ng", "set/capture", "set/capture.txt"]
    # Compressed data that broke off may be a capture.
    assert frames[0] == CaptureError("set/broken.gz", "is truncated: the gzip data end early", 0)


def test_errors_come_first_and_do_not_keep_the_rest_from_being_read(here: Path) -> None:
    (here / "a").write_bytes(capture_at(10))
    (here / "empty").write_bytes(pcap_file([]))

    frames = list(open_capture(["a", "missing", "empty", "nothing*"]))

    assert [type(item) for item in frames] == [CaptureError, CaptureError, Frame, Frame]
    assert frames[0] == CaptureError("missing", "does not exist")
    assert frames[1] == CaptureError("nothing*", "matches no file")


def test_what_cannot_be_opened_says_why(here: Path) -> None:
    (here / "none").mkdir()
    (here / "none" / "README").write_text("no capture")
    (here / "deep.d").mkdir()

    assert list(open_capture(["none"])) == [CaptureError("none", "is a directory without captures")]
    assert list(open_capture(["missing.pcap"])) == [CaptureError("missing.pcap", "does not exist")]
    assert list(open_capture(["*.d"])) == [CaptureError("*.d", "matches no file")]
    assert list(open_capture(["nul\0"])) == [CaptureError("nul\0", "cannot be opened: embedded null byte")]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert list(open_capture(["socket"])) == [CaptureError("socket", "cannot be opened: No such device or address")]


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """The test runs as somebody whom file permissions stop."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def locked(here: Path) -> Iterator[Path]:
    """A directory with an unreadable file in it, and an unreadable directory."""
    here.chmod(0o755)  # paths below are relative, so that the directories above do not matter
    (here / "set").mkdir()
    (here / "set" / "secret.pcap").write_bytes(capture_at(1))
    (here / "set" / "secret.pcap").chmod(0)
    (here / "closed").mkdir(mode=0)
    (here / "seen").mkdir()
    (here / "seen" / "notes.txt").write_text("no capture", "utf-8")
    (here / "seen").chmod(0o644)  # its names can be read, and nothing else
    yield here
    (here / "seen").chmod(0o700)
    (here / "closed").chmod(0o700)


@pytest.mark.usefixtures("locked", "unprivileged")
def test_denied_permission_is_said() -> None:
    denied = "cannot be opened: Permission denied"

    assert list(open_capture(["set/secret.pcap"])) == [CaptureError("set/secret.pcap", denied)]
    assert list(open_capture(["set"])) == [CaptureError("set/secret.pcap", denied)]
    assert list(open_capture(["closed"])) == [CaptureError("closed", denied)]
    assert list(open_capture(["closed/*"])) == [CaptureError("closed", denied)]
    assert list(open_capture(["s*/notes.txt", "[c]losed/*"])) == [
        CaptureError("seen", denied),
        CaptureError("closed", denied),
    ]
    assert list(open_capture(["**/*.pcap"])) == [
        CaptureError(name, denied) for name in ("closed", "seen", "set/secret.pcap")
    ]
    assert list(open_capture(["seen"])) == [CaptureError("seen", denied)]


def test_a_capture_cut_short_keeps_its_frames_and_the_next_is_read(here: Path) -> None:
    (here / "a").write_bytes(capture_at(10)[:-1])
    (here / "b").write_bytes(capture_at(20))

    frames = list(open_capture(["b", "a"]))

    assert [item.capture for item in frames] == ["a", "a", "b", "b"]
    assert frames[1] == CaptureError("a", "ends inside a frame record (20 of 21 bytes are there)", 45, 1)


def test_nothing_is_opened_before_the_first_item_is_asked_for(here: Path) -> None:
    items = open_capture(["later.pcap"])
    (here / "later.pcap").write_bytes(capture_at(10))

    assert len(list(items)) == 2


def test_standard_input_through_a_pipe_gives_frames_as_they_come() -> None:
    reading, writing = os.pipe()
    content = capture_at(10)
    with open(reading, "rb") as stdin:
        os.write(writing, content[:50])
        items = open_capture(["-"], stdin=stdin)
        # The writer is still there: a reader that waits for more than it needs would wait forever.
        assert next(items) == Frame(1, 10 * 10**9, 1, b"frame", 9, "-")
        os.write(writing, content[50:])
        os.close(writing)
        assert list(items) == [Frame(2, 1010 * 10**9, 1, b"frame", 9, "-")]


def test_standard_input_takes_its_turn_among_files(here: Path) -> None:
    (here / "a").write_bytes(capture_at(30))
    (here / "b").write_bytes(capture_at(10))
    secrets = struct.pack("<IIII4sI", 10, 24, 1, 4, b"line", 24)
    content = section() + secrets + interface() + enhanced(b"", 20_000_000)

    frames = list(open_capture(["a", "-", "b", "-"], stdin=io.BytesIO(content)))

    assert [item.capture for item in frames] == ["-", "b", "b", "-", "-", "a", "a"]
    assert frames[0] == CaptureError("-", "is standard input and was named before")
    assert frames[3] == CaptureSecrets("-", 1, b"line")


def test_the_standard_input_of_the_process_is_the_default(here: Path) -> None:
    script = "from mqttscope.capture import open_capture; print(*open_capture(['-']), sep='\\n')"

    ran = subprocess.run(
        [sys.executable, "-c", script], input=gzip.compress(capture_at(10)), capture_output=True, check=True
    )

    assert ran.stdout.decode().splitlines() == [str(item) for item in read_as("-", capture_at(10))]


def read_as(name: str, content: bytes) -> list[Item]:
    frames = read(content)
    for item in frames:
        item.capture = name
    return frames


def test_named_pipes_are_read_once(here: Path) -> None:
    for name, seconds in (("one", 20), ("two", 10)):
        os.mkfifo(here / name)
        threading.Thread(target=(here / name).write_bytes, args=(capture_at(seconds),), daemon=True).start()

    assert names(["one", "two"]) == ["two", "one"]


def test_whether_a_file_is_a_source_under_any_name(here: Path) -> None:
    (here / "a.pcap").write_bytes(capture_at(1))
    (here / "note.txt").write_text("no capture", "utf-8")
    (here / "link").symlink_to(here / "a.pcap")

    known: list[list[str | Path]] = [["a.pcap"], ["-", "link"], ["*.pcap"], [here], ["no.pcap", here / "a.pcap"]]
    for sources in known:
        assert is_source("a.pcap", sources)
        assert not is_source("note.txt", sources)
    assert is_source("note.txt", ["*"])
    assert not is_source("a.pcap", ["-", "none*"])


@pytest.mark.parametrize("source", ["cut.pcap", Path("cut.pcap"), b"cut.pcap"])
def test_one_path_is_no_list_of_captures(source: object) -> None:
    with pytest.raises(TypeError, match=r"open_capture takes a list of captures, as open_capture\(\["):
        open_capture(source)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "a.pcap", "a.PCAPNG", "a.pcap12", "a.pcap.3", "a.pcap_00001", "a.pcapng-2026.11.22", "a.pcap.gz",
        "a.pcapng.zst", "a.pcap1.lz4", "a.pcap.gz.1", "a.pcap.bz2", "a.ntar",
    ],
)  # fmt: skip
def test_what_is_called_a_capture_and_is_none_is_said_of_directories_too(here: Path, name: str) -> None:
    (here / "set").mkdir()
    (here / "set" / name).write_bytes(b"")
    (here / "set" / f"{name}.txt").write_bytes(b"")
    (here / "set" / f"{name}\n").write_bytes(b"")
    (here / "set" / "capture").write_bytes(capture_at(20))

    error, *frames = open_capture(["set"])

    assert error == CaptureError(f"set/{name}", "is empty", 0, 0)
    assert {frame.capture for frame in frames} == {"set/capture"}


@pytest.mark.parametrize("name", ["pcap", "a.pcapx", "a.pcap.txt", "a.pcap.part", "a.gz", "a.pcap" + "1" * 200 + "x"])
def test_names_that_say_nothing(name: str) -> None:
    assert not is_named_like_capture(name)


def test_pipes_sockets_and_links_that_lead_nowhere_are_named_and_never_waited_for(here: Path) -> None:
    (here / "set" / "dir.pcap").mkdir(parents=True)
    for suffix in ("", ".pcap"):
        os.mkfifo(here / "set" / f"pipe{suffix}")
        (here / "set" / f"gone{suffix}").symlink_to("nowhere")
        (here / "set" / f"round{suffix}").symlink_to(f"round{suffix}")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("set/s.pcap")
    texts = {
        "gone": "is a link to a file that does not exist",
        "pipe": "is not a regular file",
        "round": "cannot be opened: Too many levels of symbolic links",
    }
    irregular = [("pipe", "pipe.pcap"), ("gone", "gone.pcap"), ("round", "round.pcap")]

    result = expand("set")
    matched = expand("set/*")

    socket_error = CaptureError("set/s.pcap", "is not a regular file")
    named = [CaptureError(f"set/{name}", texts[kind]) for kind, name in irregular]
    assert result is not None
    assert sorted(map(repr, result)) == sorted(map(repr, [*named, socket_error]))
    assert matched is not None
    unnamed = [CaptureError(f"set/{kind}", texts[kind]) for kind, _ in irregular]
    assert sorted(map(repr, matched)) == sorted(map(repr, [*named, *unnamed, socket_error]))
    assert list(open_capture(["set", "set/*"])) == [*result, *(each for each in matched if each in unnamed)]


def test_what_is_named_itself_is_not_looked_at(here: Path) -> None:
    os.mkfifo(here / "pipe")

    assert expand("pipe") is None
    assert expand("missing.pcap") is None
    assert expand("nul\0") is None
    assert expand("no*") == [CaptureError("no*", "matches no file")]


def test_links_come_last(here: Path) -> None:
    for name in "bca":
        (here / name).write_bytes(b"")
    (here / "0").symlink_to("c")

    assert links_last("x", ["b", "a"]) == ["x/a", "x/b"]
    assert links_last("", ["0", "c", "b", "a"]) == ["a", "b", "c", "0"]


def test_files_are_the_same_under_any_name(here: Path) -> None:
    (here / "a").write_bytes(b"")
    (here / "b").write_bytes(b"")
    (here / "link").symlink_to("a")
    (here / "hard").hardlink_to(here / "a")
    (here / "gone").symlink_to("nowhere")

    assert identity("a") == identity("./link") == identity(str(here / "hard"))
    assert len({identity(name) for name in ("a", "b", "gone", "missing", "other", "nul\0")}) == 6
    assert [fault(name) for name in ("a", "link", "gone", "missing", ".")] == [
        None, None, "is a link to a file that does not exist", "does not exist", "is not a regular file"
    ]  # fmt: skip
    assert str(fault("nul\0")).startswith("cannot be opened: ")
