"""Inputs at the limits of the package lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from mqttscope.capture.locations import Location
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.lake import declared, writer
from mqttscope.lake.commit import MERGED, _files_to_merge, commit
from mqttscope.lake.declared import PayloadPart, properties_row
from mqttscope.lake.files import LakeFiles
from mqttscope.lake.finding_collector import FindingCollector
from mqttscope.lake.manifest import LakeError, Manifest, check_tables, write_manifest
from mqttscope.lake.memory import LateData, remembered, resume
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.rows import error_row
from mqttscope.lake.state import NotSerializableError, StateError, dump, load
from mqttscope.lake.summary import summarize
from mqttscope.lake.tables import Collector, batch
from mqttscope.lake.tracker import TrackedMessage, Tracker
from mqttscope.lake.writer import IngestResult
from mqttscope.lint.examples import client, conversation, opened, segments
from mqttscope.lint.gate import FindingSelection
from mqttscope.mqtt import Properties
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.segment import Segment
from mqttscope.session.connection import Connection
from tests.explain.running import capture
from tests.lake.reading import collect
from tests.lake.telling import OfSession
from tests.lint.lint_help import steps_of
from tests.mqtt.octets import framed


def talk(*lines: str, handshake: bool = True) -> list[Segment]:
    return segments(conversation("", *steps_of(*lines), handshake=handshake))


def merged_files(size: int) -> int:
    """How many files of this size become one."""
    names = [str(number) for number in range(MERGED)]
    return len(_files_to_merge(names, Manifest(rows=dict.fromkeys(names, 1), sizes=dict.fromkeys(names, size))))


def kept_blocks(*sizes: int) -> int:
    """How many structs of property blocks are kept after some of such sizes."""
    with patch.dict(declared._blocks, clear=True):
        for size in sizes:
            properties_row(Properties(content_type="x" * size), "properties", [], [])
        return len(declared._blocks)


def kept_digests(size: int) -> int:
    """How many digests are kept after that of a payload."""
    declared._known_sha256.cache_clear()
    PayloadPart().columns(bytes(size), 0)
    return declared._known_sha256.cache_info().currsize


def forgotten_clients(names: str) -> int:
    """How many of some clients a task does not remember."""
    judge = FindingCollector(LakeOptions())
    source = talk(*(f"@{number} opened client={name}" for number, name in enumerate(names)))
    for event in dissect_segments(source, judge.options.reading()):
        judge.feed(event)
    return len(names) - len(judge.sums.clients)


def left_out(pings: int) -> int:
    """How many events are left out of a selection by client if its name does not come."""
    judge = FindingCollector(LakeOptions(rules=(OfSession(),)), selection=FindingSelection(clients=("*",)))
    for event in dissect_segments(talk(f"for 1..{pings}: > pingreq", handshake=False)):
        judge.feed(event)
    judge.ended(Dissector())
    return judge.sums.left_out


def checks(size: int, folder: Path) -> bool:
    """Whether damage in a table of this size is found before it is read."""
    name = "packets/1.parquet"
    (folder / "packets").mkdir()
    (folder / name).write_bytes(bytes(size))
    try:
        check_tables(folder, Manifest(1, files={"packets": [name]}, sizes={name: size}, checksums={name: 1}))
    except LakeError:
        return True
    return False


def late_parts(*seconds: float) -> int:
    """How many parts a connection has after its SYN came again from other captures, so long before the first one."""
    options, actual_segments = LakeOptions(), talk("opened; > pingreq")
    dissector, collector = Dissector(options.reading()), Collector(options)
    for segment in actual_segments:
        for event in dissector.feed(segment):
            collector.feed(event)
    (memory,) = remembered(dissector, collector)
    dissector, collector = Dissector(options.reading()), Collector(options)
    resume(memory, dissector, collector)
    late = LateData(dissector, collector)
    late.adopt(memory)
    for number, before in enumerate(seconds):
        segment = replace(
            actual_segments[0], timestamp_ns=actual_segments[0].timestamp_ns - round(before * 1e9), capture=str(number)
        )
        for event in late.events(segment) or ():
            collector.feed(event)
    return len(late.remembered(remembered(dissector, collector), None)[0].parts)


def forgotten_parts(count: int) -> int:
    """How many of so many parts are not remembered."""
    return count - late_parts(*range(2, 2 * count + 2, 2))


def malformed_bytes(size: int) -> tuple[int, int]:
    """How many bytes of a packet with a malformed topic its row holds, and says that it has."""
    source = segments(conversation("", *opened(), client(framed(0x30, b"\0\2a\0", bytes(size - 8)))), 10_000)
    result = collect(dissect_segments(source), LakeOptions())["packets"][-1]["malformed"]
    return len(result["raw"]), result["raw_length"]


def drops(count: int) -> tuple[object, ...]:
    """What the row of dropped frames says of their number."""
    return error_row(CaptureDrops("a", 0, None, count))[2::5]


def why(action: Callable[[], object]) -> str:
    """Why state cannot be read or written."""
    try:
        action()
    except (StateError, NotSerializableError) as error:
        return str(error)
    return ""


def read_state(size: int) -> str:
    """Why state of so many bytes, inflated, cannot be read."""
    data = dump(bytes(size - 5))
    return why(lambda: load(data))


def write_number(value: int) -> str:
    return why(lambda: dump(value))


def errors(count: int, folder: Path) -> tuple[int, int]:
    """How many errors of captures a summary has, and how many more it says that there are."""
    with LakeFiles(folder, 1) as files:
        rows = [error_row(CaptureError(f"{number}.pcap", "is damaged")) for number in range(count)]
        files.write("ingest_errors", batch("ingest_errors", rows))
    write_manifest(folder, Manifest(1, files=files.names))
    summary = summarize(folder, Manifest(), IngestResult())
    return len(summary.errors), summary.more_errors


def forgotten_holes(count: int) -> int:
    """How many of some connections that ended with holes are not remembered."""
    collector = Collector(LakeOptions())
    source = f"for 1..{count}: @{{n}} opened client=c{{n}}; @{{n}} lost > pingreq; @{{n}} > pingreq; @{{n}} > reset"
    for event in dissect_segments(talk(source)):
        collector.feed(event)
    return count - len(collector.holes)


def commits(free: int, folder: Path) -> bool:
    """Whether a commit begins with so much free space."""
    with patch("shutil.disk_usage", return_value=SimpleNamespace(free=free)):
        try:
            (folder / str(free)).mkdir()
            commit(folder / str(free), Manifest(), Manifest(1))
        except LakeError:
            return False
    return True


def equal_identifiers(connections: int) -> int:
    """How many of some connections have the identifier of another one, if the last one is like the first one."""
    collector = Collector(LakeOptions())
    times_ns = [*range(connections), 0]
    for number, opened_ns in enumerate(times_ns):
        collector._tracker(Connection(number, "", "", "", 0, opened_ns))
    return len(times_ns) - len({tracker.connection_id for tracker in collector.trackers.values()})


def early_findings(pings: int) -> int:
    """How many findings are rows before the session of their connection is known."""
    collector, dissector = Collector(LakeOptions(rules=(OfSession(),)), key="key"), Dissector()
    for segment in talk("> connect client=-", f"for 1..{pings}: > pingreq"):
        for event in dissector.feed(segment):
            collector.feed(event)
    return len(collector.rows["findings"])


def latency(nanoseconds: int) -> object:
    """The latency in the row of a message."""
    return TrackedMessage([], 0, 1, completed_ns=nanoseconds).row()[5]


def first_hole(count: int) -> tuple[int, int]:
    """The first of so many holes."""
    tracker = Tracker("a")
    for number in range(count):
        tracker.note_hole(True, 100 * number, 1)
    return tracker.holes[0].start, tracker.holes[0].end


def settled(nanoseconds: int) -> list[str]:
    """Which objects of a store are known again by their time if they were written so long ago."""
    path, now_ns = capture("v5-qos"), 1 << 60
    location = Location("a", str(path), path.stat().st_size, written_ns=now_ns - nanoseconds)
    with patch("mqttscope.lake.writer.time.time_ns", lambda: now_ns):
        return list(writer._fresh([location], {}, Manifest()).objects)
