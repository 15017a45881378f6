"""Inputs at the limits of the package replay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from mqttscope.dissect import dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.lint.examples import conversation, segments
from mqttscope.mqtt import Publish
from mqttscope.mqtt.parts import Subscription
from mqttscope.replay.drivers import run
from mqttscope.replay.drivers.client import ClientDriver, MonotonicClock, ReplayContext, Timeline
from mqttscope.replay.drivers.run import BrokerTarget, Pace, ReplayRunner, make_plan
from mqttscope.replay.drivers.serve import ServerDriver, ServerRun
from mqttscope.replay.live import PACKET_BYTES, NoteKind, PacketBudget
from mqttscope.replay.order import ConnectionEnd, Gates, StepOrder, make_order
from mqttscope.replay.rewrite.convert import ConversionError, convert
from mqttscope.replay.rewrite.links import Changes, RewriteError
from mqttscope.replay.rewrite.names import judge_identifier
from mqttscope.replay.rewrite.settings import parse_value, targets
from mqttscope.replay.script import Script
from mqttscope.replay.script_file import ScriptFile, ScriptFileError, read_script, script_file
from mqttscope.replay.server import ConnectionMatcher, ServerSessions, live_connection
from mqttscope.replay.server.connection import DeviceSubscription
from mqttscope.replay.verify.captures import PACKET_COST, TooMuchKeptError
from mqttscope.replay.verify.deliveries import match_alike
from mqttscope.replay.verify.difference import short
from mqttscope.replay.verify.metrics import RecordedMetrics
from mqttscope.session.connection import Connection
from mqttscope.transport.target import BrokerUrl
from tests.limits.leaping import leaping, now
from tests.lint.lint_help import steps_of
from tests.replay.client.playing import begun, player, say, texts
from tests.replay.drivers.test_serve import Wire, driven
from tests.replay.recordings import V3_1, V3_1_1, V5
from tests.replay.server.desk import HELLO, Desk
from tests.replay.talk import OPENED, asked, compare, pairs, record, said_bytes, session, told, whole
from tests.replay.test_live import both, said
from tests.replay.test_script_file import document
from tests.replay.verify.test_captures import compared

SECOND = 1_000_000_000
DOCUMENT = document(asked())
HEAD = PACKET_BYTES
"""What a packet counts beside its bytes."""


def message(size: int, more: str = "") -> str:
    """A PUBLISH of so many bytes, in words."""
    words = f"publish a {'p' * size} {more}"
    return f"publish a {'p' * (2 * size - len(said_bytes('dev', words)))} {more}"


# The server


def subscribed(count: int) -> str:
    """The answer to the last of so many subscriptions."""
    device, _ = Desk(HELLO).connect()
    return device.say(*(f"subscribe {number} t/{number}:0" for number in range(1, count + 1)))[-1]


def compared_of(total: int) -> list[str]:
    """What is noted of a device whose packets take so much room."""
    device, _ = Desk(HELLO).connect()
    live = device.player.live
    used = sum(HEAD + len(entry.raw) for entry in live.script.entries)
    device.say(message(total - used - HEAD))
    return [note.text for note in live.notes if "not compared" in note.text]


def is_remembered(total: int) -> bool:
    """Whether the answer to the first of two messages is known as such, which take so much room."""
    live = live_connection(Script(Connection(0, "", "", "", 0, 0)))
    second = "publish a qos=1 id=2"
    first = message(total - 2 * HEAD - len(said_bytes("", second)), "qos=1 id=1")
    return said(live, "> connect", "< connack", f"> {first}", f"> {second}", "< puback 1")[-1].answers is not None


def is_first_answered(count: int, line: str, answer: str, *, is_served: bool = False) -> bool:
    """Whether an answer is that to the first of so many packets."""
    live = live_connection(Script(Connection(0, "", "", "", 0, 0))) if is_served else both()[0]
    lines = [f"> {line.replace('ID', str(number))}" for number in range(1, count + 1)]
    entries = said(live, "> connect", "< connack", *lines, f"< {answer}")
    return entries[-1].answers is entries[2]


def sessions(count: int) -> tuple[int, int]:
    """Sessions that are remembered of so many, and those that were forgotten."""
    server_sessions = ServerSessions()
    for number in range(count):
        server_sessions.session_of(f"dev-{number}").subscriptions["a"] = DeviceSubscription(Subscription("a"), 0)
    return len(server_sessions.known), server_sessions.forgotten


def incomplete(size: int) -> str:
    """The answer to a message of so many bytes whose handshake is not complete."""
    device, _ = Desk(HELLO).connect()
    return device.say(message(size, "qos=2 id=1"))[-1]


def repeated(count: int) -> tuple[int, list[str]]:
    """Messages that repeat what a device said instead of what was recorded, and what is noted of others."""
    numbers = range(1, count + 1)
    lines = [f"dev > publish q/{number} old" for number in numbers] + [
        f"dev < publish q/{number} old" for number in numbers
    ]
    device, _ = Desk("\n".join((HELLO, "dev > subscribe 1 q/#:0", "dev < suback 1 0", *lines))).connect()
    heard = device.say("subscribe 1 q/#:0", *(f"publish q/{number} new" for number in numbers))
    notes = [note.text.partition(":")[0] for note in device.player.live.notes if "values of the device" in note.text]
    return sum(" new " in line for line in heard), notes


# What both sides have in common


def notes(count: int) -> list[str]:
    """Texts of the notes of a connection with so many."""
    live, _ = both()
    for number in range(count):
        live.note(NoteKind.ADAPTED, str(number))
    return [note.text for note in live.notes]


def room(size: int) -> int:
    """Room that is taken for a packet of so many bytes."""
    return PacketBudget().reserve(0, bytes(size))


def expired(seconds: int, late_ns: int = 0) -> StepOrder:
    """The order of a session that expires, and of a connection that begins later than that."""
    lines = f"a > connect session_expiry_interval={seconds}\na < connack\na > fin\n"
    first, second = scripts = record(lines + "a > connect resume\na < connack\na > fin")
    second.opened_ns = first.ending.timestamp_ns + seconds * SECOND + late_ns
    for entry in second.entries:
        entry.timestamp_ns = second.opened_ns
    return make_order(scripts)


def short_of(late_ns: int) -> int:
    """By how much a session gets less time to expire than in the recording."""
    (timer,) = expired(1, late_ns).timers[ConnectionEnd(0)]
    return SECOND + late_ns - timer.wait_ns


# The client


def acknowledged(count: int) -> tuple[int, set[str]]:
    """Acknowledgements of so many messages that come at once, and what is noted."""
    client = begun(session())
    sent = say(client, *(f"publish t qos=1 id={number}" for number in range(1, count + 1)))
    return len(sent), {text for text in texts(client) if "wait to be sent" in text}


@dataclass
class Pipe(Wire):
    """A link that keeps what is written to it, one by one."""

    local: str = "here:1"
    written: list[bytes] = field(default_factory=list)
    unsent: int = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)


async def driving(*lines: str, later_ns: int = 0) -> tuple[ClientDriver, Pipe]:
    """A client that is connected and sends these lines so much later, when it has had its turns."""
    script = session(*lines, ended=("fin", "server"))
    for entry in script.entries[2:]:
        entry.timestamp_ns += later_ns
    timeline = Timeline([script.opened_ns] if later_ns else ())
    context = ReplayContext(Gates(make_order([script])), timeline, MonotonicClock(), 1.0)
    driver, pipe = ClientDriver(0, player(script), context), Pipe()
    driver.opened(pipe)  # type: ignore[arg-type]
    driver.pump()
    driver.received(said_bytes("", "connack"))
    for _ in range(10):
        await asyncio.sleep(0)
    del pipe.written[0]
    return driver, pipe


async def turns(*sizes: int) -> list[int]:
    """Sizes of what is written in each turn of messages of these sizes."""
    driver, pipe = await driving(*(f"> {message(size)}" for size in sizes))
    driver.stop()
    return [len(data) for data in pipe.written]


@leaping
async def stuck(number: int) -> str:
    """How a connection ends whose server takes so many bytes in a second."""
    driver, pipe = await driving("> publish a", later_ns=3_600 * SECOND)
    pipe.unsent = 1_000_000
    driver.writable(False)
    pipe.unsent -= number
    await asyncio.sleep(1.5)
    how = pipe.how
    driver.stop()
    return how


def replaying(port: int, *scripts: Script, scheme: str = "mqtt") -> ReplayRunner:
    return ReplayRunner(scripts, BrokerTarget(BrokerUrl(scheme, "127.0.0.1", port, None, "/mqtt")), Pace(None))


@leaping
async def unconnected(count: int) -> int:
    """Connections that are not begun, of so many that nobody answers."""
    came: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: came.append(writer), "127.0.0.1", 0)
    scripts = record("\n".join(f"dev-{number} > connect" for number in range(count)))
    async with server:
        replay = replaying(server.sockets[0].getsockname()[1], *scripts, scheme="ws")
        running = asyncio.create_task(replay.run())
        await asyncio.sleep(1)
        waiting = count - len(came)
        replay.stop()
        await running
        for writer in came:
            writer.close()
    return waiting


@leaping
async def answered(seconds: float, answer: bytes) -> str:
    """Why a connection fails that a server answers after so long."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        await asyncio.sleep(seconds)
        writer.write(answer)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    with patch.object(run, "LOOK_SECONDS", 0.5):
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            replay = replaying(server.sockets[0].getsockname()[1], session())
            await replay.run()
            await asyncio.sleep(2)
    return replay.drivers[0].failure.rpartition(": ")[2] or f"{len(replay.missed)} missed"


async def passed_over(size: int) -> list[str]:
    """What is noted of a packet of so many bytes."""
    (driver,) = replaying(1, session()).drivers
    driver.received(said_bytes("", message(size)))
    return [note.text for note in driver.player.live.notes]


def named(count: int) -> str:
    """The end of a sentence that names so many topics."""
    plan = make_plan([session(*(f"> publish t/{number} x retain" for number in range(count)))])
    return plan.warnings[0].rpartition(", ")[2]


# Devices


@leaping
async def spoken(seconds: float) -> list[str]:
    """What is said of a device that sends its CONNECT after so long."""
    async with driven() as (driver, _, hall):
        await asyncio.sleep(seconds)
        driver.received(said_bytes("dev", "connect"))
        return hall.notes


async def is_listened_to(count: int) -> bool:
    """Whether a device is listened to that so many answers wait for."""
    async with driven(HELLO + "dev > pingreq\n+5 dev < pingresp\n", speed=1.0) as (driver, wire, hall):
        driver.received(said_bytes("dev", "connect"))
        hall.clock_ns += SECOND
        driver.pump()
        driver.received(b"\xc0\x00" * count)
        return wire.reading


async def unsent(count: int) -> int:
    """Answers that are not sent in the first turn, of so many."""
    async with driven() as (driver, wire, _):
        driver.received(said_bytes("dev", "connect"))
        before = len(wire.sent)
        driver.received(b"\xc0\x00" * count)
        return count - (len(wire.sent) - before) // 2


async def taken(look_ns: int) -> int:
    """Packets that are taken in one turn where each look at the clock takes so long."""
    async with driven() as (driver, _, hall):
        driver.received(said_bytes("dev", "connect"))
        hall.look_ns = look_ns
        driver.received(b"\xc0\x00" * 4)
        return driver.heard - 1


@leaping
async def strangers(count: int, *arguments: str) -> list[str]:
    """What is said of so many devices that the recording does not have, and at the end."""
    sentences: list[str] = []
    serving = ServerRun([], ConnectionMatcher([]), note=sentences.append)
    for number in range(count):
        driver = ServerDriver(Pipe(f"dev-{number}:1"), serving)  # type: ignore[arg-type]
        for line in ("connect", *arguments):
            driver.received(said_bytes(f"dev-{number}", line))
        driver.stop()
    await serving.close()
    known = [sentence.rpartition("closed: ")[2] for sentence in sentences]
    return ["no connection" if "connection for this client" in sentence else sentence for sentence in known]


@leaping
async def ended(seconds: float) -> float:
    """How long a run takes to end that a signal ends, with a device that closes after so long."""
    loop, serving = asyncio.get_running_loop(), ServerRun([], ConnectionMatcher([]))
    await serving.start("127.0.0.1", 0)
    assert serving.server is not None
    _, writer = await asyncio.open_connection("127.0.0.1", serving.server.port)
    await asyncio.sleep(1)
    loop.call_later(seconds, writer.close)
    serving.stop(hurry=True)
    await serving.close()
    seconds = now() - 1
    writer.close()
    return round(seconds, 3)


# Recordings that are changed, written and compared


def converted(count: int) -> list[str]:
    """What is said of so many properties that 3.1.1 has no form for."""
    words = ["content_type=t", "response_topic=r", "correlation_data=c", "user_property=u:u"]
    try:
        convert([whole("> connect", "< connack", f"> publish a x {' '.join(words[:count])}")], V3_1_1)
    except ConversionError as error:
        return [row.partition(":")[0].rpartition(".")[2] for row in str(error).split("\n  ")[1:]]
    return []


def set_to(size: int) -> int | str:
    """The length of a value of so many characters."""
    try:
        return len(parse_value(targets()["publish.properties.correlation_data"], "x" * size))
    except RewriteError as error:
        return str(error).partition(": ")[2]


def identified(size: int, *, is_old: bool = False) -> list[str]:
    """What is wrong with a Client Identifier of so many characters."""
    changes = Changes()
    try:
        judge_identifier("x" * size, V3_1 if is_old else V5, changes)
    except RewriteError as error:
        return [str(error).partition("' ")[2]]
    return list(changes)


def steps(count: int) -> tuple[object, object]:
    """Steps of a script that is written, and of one that is read, with so many."""
    script_document: dict[str, Any] = {**DOCUMENT, "steps": [{"after": 0, "from": "client", "ends": "fin"}] * count}
    results: list[object] = []
    (script,) = record("dev > connect\ndev < connack\n" + "dev > pingreq\n" * (count - 2))
    makers: list[Callable[[], ScriptFile]] = [
        lambda: script_file(script), lambda: read_script(json.dumps(script_document).encode()),
    ]  # fmt: skip
    for make in makers:
        try:
            results.append(len(make().steps))
        except ScriptFileError as error:
            results.append(str(error))
    return results[0], results[1]


def after(ns: int) -> int | str:
    """The time of the last step of a script, in nanoseconds."""
    script_document = dict(DOCUMENT)
    script_document["steps"] = [script_document["steps"][0], {**script_document["steps"][1], "after": "AFTER"}]
    del script_document["hidden"]
    written = json.dumps(script_document).replace('"AFTER"', f"{ns // SECOND}.{ns % SECOND:09}")
    try:
        return read_script(written.encode()).steps[-1].after_ns
    except ScriptFileError as error:
        return str(error)


def repeated_text(size: int) -> str:
    """What a message repeats of a text of so many characters."""
    return short("x" * size)


def expiring(left: int) -> list[Any]:
    """What differs where a message with an expiry interval of ten seconds has so much left after five."""
    published = OPENED + "pub > publish t/a x message_expiry_interval=10\n"
    came = "sub < publish t/a x message_expiry_interval="
    return told(compare(pairs(f"{published}+1 {came}9", f"{published}+5 {came}{left}")))


def alike(count: int) -> int:
    """Which of so many deliveries is taken for a recorded one that the last is most like."""
    recorded = whole("> connect", "< connack", "< publish t x content_type=t response_topic=r")
    lines = ["< publish t x"] * (count - 1) + ["< publish t x content_type=t"]
    live = whole("> connect", "< connack", *lines).entries
    live = [entry for entry in live if isinstance(entry.packet, Publish)]
    ((_, delivery),) = match_alike([recorded.entries[-1]], live)
    return live.index(delivery)


def anonymous(name: str, *topics: str) -> str:
    """A connection without a Client Identifier, in lines."""
    published = (f"{name} > publish {topic} on" for topic in topics)
    return "\n".join((f"{name} > connect client=", f"{name} < connack", *published, f"{name} > fin"))


def unpaired(count: int) -> int:
    """Connections of the first capture that have no counterpart among so many, of which the first is like it."""
    others = [anonymous("b0", "a/1"), *(anonymous(f"b{number}", f"c/{number}") for number in range(1, count))]
    differences, _ = compared(anonymous("a", "a/1", "a/2"), "\n".join(others))
    return sum(str(difference.kind) == "connection" and difference.only == "a" for difference in differences)


def kept(total: int) -> str:
    """What is said of a capture whose packets take so much room, and have no counterpart yet."""
    lines = ["connect"] if total % 2 == 0 else ["connect", "pingreq"]
    room = (total - (len(lines) + 1) * PACKET_COST) // 2
    lines.append(message(room - sum(len(said_bytes("dev", line)) for line in lines)))
    try:
        compared("\n".join(f"dev > {line}" for line in lines), "")
    except TooMuchKeptError as error:
        return str(error).partition(" of packets ")[2]
    return ""


def unnamed_metrics(count: int) -> int:
    """Servers with data whose metric has no name from a birth."""
    metrics, contents = RecordedMetrics(), []
    lines = "opened client=e", "> publish spBv1.0/g/NBIRTH/e spb(T#7:Int32=1)", "> publish spBv1.0/g/NDATA/e spb(#7=1)"
    for number in range(count):
        steps = segments(conversation("", *steps_of(*lines), server=f"10.0.0.{number}:1883"))
        contents += [metrics.read(event) for event in dissect_segments(steps) if isinstance(event, PacketEvent)]
    return 2 * count - sum(content is not None and "T" in content.metrics for content in contents)
