"""Recordings of all kinds, replayed against servers with other limits and identifiers: clients break no rule."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.mqtt import ControlPacket, Properties, ProtocolVersion, Publish, Pubrec, Pubrel, decode, encode
from mqttscope.replay.client.player import ClientPlayer
from mqttscope.replay.script import C2S, Script
from tests.replay.recordings import EXHAUSTIVE, V3_1_1, V5, Line, recordings
from tests.replay.simulation import Broker, Client, Simulation, events
from tests.replay.talk import read

TOPICS = ("a", "a/b", "c")
FILTERS = (*TOPICS, "a/#", "+/b", "#")


@dataclass
class Recorder:
    """Lets clients talk with a broker, and writes down what is said."""

    broker: Broker = field(default_factory=Broker)
    lines: list[Line] = field(default_factory=list)
    open: dict[str, tuple[int, Client, ProtocolVersion]] = field(default_factory=dict)
    ended: dict[int, tuple[str, str]] = field(default_factory=dict)
    connections: int = 0
    identifier: int = 0

    def connect(self, name: str, version: ProtocolVersion, clean: bool) -> None:
        self.open[name] = self.connections, self.broker.connect(), version
        self.connections += 1
        lasting = "session_expiry_interval=1000" if version == V5 and not clean else ""
        self.say(name, f"connect {'' if clean else 'resume'} keep_alive=60 {lasting}")

    def say(self, name: str, words: str) -> None:
        number, client, version = self.open[name]
        packet = read(words, version, name)
        self.lines.append((number, ">", packet))
        self.broker.take(client, encode(packet, version))
        self.hear()

    def hear(self) -> None:
        """Everybody hears what the broker says, and answers."""
        for name, (number, client, version) in list(self.open.items()):
            while client.to_client:
                packet = decode(client.to_client.pop(0), version)
                assert isinstance(packet, ControlPacket)
                self.lines.append((number, "<", packet))
                if isinstance(packet, Publish) and packet.packet_identifier is not None:
                    self.say(name, f"{'puback' if packet.qos == 1 else 'pubrec'} {packet.packet_identifier}")
                elif isinstance(packet, Pubrec):
                    self.say(name, f"pubrel {packet.packet_identifier}")
                elif isinstance(packet, Pubrel):
                    self.say(name, f"pubcomp {packet.packet_identifier}")

    def leave(self, name: str, how: str) -> None:
        if how == "disconnect":
            self.say(name, "disconnect")
        number, client, _ = self.open.pop(name)
        client.closed = True
        self.ended[number] = ("reset" if how == "reset" else "fin", "client")

    def next_identifier(self) -> int:
        self.identifier = self.identifier % 5 + 1
        return self.identifier

    @property
    def scripts(self) -> list[Script]:
        return recordings(*self.lines, ended=self.ended)


actions = st.tuples(
    st.sampled_from(["publish", "publish", "publish", "subscribe", "unsubscribe", "ping", "disconnect", "reset"]),
    st.integers(0, 2),
    st.integers(0, 5),
    st.integers(0, 2),
    st.booleans(),
)
limits = st.builds(
    lambda window, qos, retain, size: Properties(
        receive_maximum=window, maximum_packet_size=size, **({"maximum_qos": qos} if qos < 2 else {}),
        **({} if retain else {"retain_available": 0}),
    ),
    st.integers(1, 3), st.integers(0, 2), st.booleans(), st.sampled_from([30, 1_000]),
)  # fmt: skip


def record(rows: list[tuple[str, int, int, int, bool]], versions: list[ProtocolVersion]) -> list[Script]:
    recorder = Recorder()
    for number, (what, who, which, qos, flag) in enumerate(rows):
        name = f"c{who}"
        if name not in recorder.open:
            recorder.connect(name, versions[who], flag)
        identifier = recorder.next_identifier()
        if what == "publish":
            more = f"qos={qos}" + (f" id={identifier}" if qos else "") + " retain" * flag
            recorder.say(name, f"publish {TOPICS[which % 3]} {number} {more}")
        elif what == "subscribe":
            recorder.say(name, f"subscribe {identifier} {FILTERS[which]}:{qos}")
        elif what == "unsubscribe":
            recorder.say(name, f"unsubscribe {identifier} {FILTERS[which]}")
        elif what == "ping":
            recorder.say(name, "pingreq")
        else:
            recorder.leave(name, what)
    for name in list(recorder.open):
        recorder.leave(name, "disconnect")
    return recorder.scripts


def errors(player: ClientPlayer) -> list[str]:
    """What the client did wrong."""
    linter = Linter(map(usual_rule, select().values()), strict=True)
    findings = [finding for event in events(player) for finding in linter.feed(event)]
    return [finding.message for finding in findings if finding.direction is C2S and finding.severity == "error"]


@settings(max_examples=300 if EXHAUSTIVE else 50, deadline=None)
@given(
    sent_actions=st.lists(actions, min_size=1, max_size=25),
    versions=st.lists(st.sampled_from([V3_1_1, V5]), min_size=3, max_size=3),
    announced=st.none() | limits,
    causal=st.booleans(),
    refuse=st.sampled_from([0, 0, 0, 0x87]),
)
def test_no_client_breaks_a_rule(
    sent_actions: list[tuple[str, int, int, int, bool]],
    versions: list[ProtocolVersion],
    announced: Properties | None,
    causal: bool,
    refuse: int,
) -> None:
    scripts = record(sent_actions, versions)
    replay = Simulation(scripts, Broker(limits=announced, refuse=refuse), causal=causal)
    players = replay.run()

    assert [errors(player) for player in players] == [[] for _ in players]
    if announced is None and not refuse:
        assert not replay.stalled
        for player in players:
            live = player.live.script.entries
            sent = [
                (script_entry.type, script_entry.topic)
                for script_entry in live
                if script_entry.from_client and script_entry.source is not None
            ]
            said_then = [
                (script_entry.type, script_entry.topic)
                for script_entry in player.script.entries
                if script_entry.from_client
            ]
            assert sorted(map(str, sent)) == sorted(map(str, said_then))
