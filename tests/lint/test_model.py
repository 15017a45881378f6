"""Models: moved on once for all rules, after these have judged, and kept for the key of their scope."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import GapEvent
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Scope, Severity
from mqttscope.lint.model import Model
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.packets import Connack, Pingreq, Publish
from mqttscope.mqtt.stream import Unparsed
from mqttscope.session.connection import Connection
from tests.each import each
from tests.lint.lint_help import lint, steps_of, talked

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Diary(Model):
    """What happened on a server."""

    code: ClassVar[str] = "diary"
    scope: ClassVar[Scope] = Scope.BROKER
    looks_at: ClassVar[Any] = (Publish, Connack)

    lines: list[str] = field(default_factory=list)

    def follow(self, packet: Any, at: RuleContext) -> None:
        if isinstance(packet, Connack):
            at.ask(self, at.timestamp_ns + 10 * SECOND_NS)
        self.lines.append(f"{at.client_name} {packet.packet_type.name}")

    def opened(self, connection: Connection, at: RuleContext) -> None:
        self.lines.append("opened")

    def gap(self, event: GapEvent, at: RuleContext) -> None:
        self.lines.append("gap")

    def unparsed(self, unparsed: Unparsed, at: RuleContext) -> None:
        self.lines.append("unparsed")

    def due(self, connection: Connection, at: RuleContext) -> None:
        self.lines.append(f"{at.client_name} due")

    def closed(self, connection: Connection, at: RuleContext) -> None:
        self.lines.append(f"{at.client_name} closed")


class Reader(Rule):
    """Reads it at each PINGREQ."""

    code = "TST460"
    severity = Severity.ERROR
    looks_at: ClassVar[Any] = (Pingreq, Publish)
    models = (Diary,)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        lines = at.model(Diary).lines
        return self.report("", ", ".join(lines)) if isinstance(packet, Pingreq) else None


class OtherReader(Reader):
    """Another one."""

    code = "TST461"


def told(text: str, rules: Any = (Reader,)) -> list[str]:
    return [finding.message for finding in lint(map(usual_rule, rules), talked(*steps_of(text)))]


PING = "> pingreq; < pingresp"


@each(
    "text, rules, seen",
    [
        # What came before, and not what is judged.
        (f"opened; {PING}; > publish a; {PING}", (Reader,), ["opened, c1 CONNACK", "opened, c1 CONNACK, c1 PUBLISH"]),
        # Moved on once, whoever reads it, and one for all connections of its key.
        (f"opened; {PING}", (Reader, OtherReader), ["opened, c1 CONNACK"] * 2),
        (
            "opened; > fin; @1 opened client=c2; @1 > pingreq",
            (Reader,),
            ["opened, c1 CONNACK, c1 closed, opened, c2 CONNACK"],
        ),
        # It is told of lost bytes and of times.
        ("opened; lost > publish a; < pingresp; +12 > pingreq", (Reader,), ["opened, c1 CONNACK, c1 due, gap"]),
    ],
)
def test_what_a_model_has_seen(text: str, rules: tuple[type[Rule], ...], seen: list[str]) -> None:
    assert told(text, rules) == seen


@dataclass(slots=True)
class Chosen(Diary):
    """Follows the messages with RETAIN 1 alone, and knows their topics."""

    code: ClassVar[str] = "chosen"
    when: ClassVar[Any] = {Publish: "retain"}

    topics: dict[str, int] = field(default_factory=dict)

    def follow(self, packet: Any, at: RuleContext) -> None:
        Diary.follow(self, packet, at)
        if isinstance(packet, Publish) and at.topic is not None:
            self.topics[at.topic] = 1


class AboutTopics(Rule):
    """Is asked about the messages of these topics, and about each PINGREQ."""

    code = "TST463"
    severity = Severity.ERROR
    looks_at: ClassVar[Any] = (Pingreq, Publish)
    models = (Chosen,)
    about = Chosen, "topics"

    def check(self, packet: Any, at: RuleContext) -> Findings:
        return self.report("", f"{packet.packet_type.name} {at.topic} {len(at.model(Chosen).lines)}")


def test_a_model_may_follow_some_packets_alone_and_a_rule_be_about_its_topics() -> None:
    says = "> publish a & publish b"

    texts = told(f"opened; {says}; > publish a retain; {says}; {PING}", rules=(AboutTopics,))
    assert texts == ["PUBLISH a 3", "PINGREQ None 3"]


def test_what_a_model_remembers_is_written_down_by_its_word() -> None:
    linter = Linter([Reader()], strict=True)
    for event in dissect_segments(talked(*steps_of("opened")), more=True):
        linter.feed(event)

    (memories,) = linter.remembered().values()
    assert memories == {"diary": Diary(["opened", "c1 CONNACK"])}


def test_what_a_model_is_to_the_engine_is_no_part_of_its_state() -> None:
    models = {model for rule in all_rules().values() for model in rule.models} | {Diary, Chosen}

    assert len(models) > 5
    for model in models:
        assert model.Memory is model
        assert not {"code", "scope", "looks_at", "when", "Memory"} & {field.name for field in fields(model)}  # type: ignore[arg-type]
    assert Chosen.when == {Publish: "retain"} != Diary.when == Model.when


def test_a_model_that_fails_is_an_internal_error() -> None:
    @dataclass(slots=True)
    class Broken(Model):
        code: ClassVar[str] = "broken"
        scope: ClassVar[Scope] = Scope.BROKER

        def opened(self, connection: Connection, at: RuleContext) -> None:
            raise ValueError("no")

    class Reads(Reader):
        """Reads that."""

        code = "TST462"
        models = (Broken,)  # type: ignore[assignment]

    linter = Linter([Reads()])
    events = list(dissect_segments(talked(*steps_of("opened"))))
    for event in events:
        linter.feed(event)
    assert linter.failures == {"broken": 1}
    with pytest.raises(ValueError, match="no"):
        Linter([Reads()], strict=True).feed(events[0])
