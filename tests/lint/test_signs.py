"""Signs: which packets bear which; that rules need no others is shown in ``test_dispatch``."""

from __future__ import annotations

import pytest

from mqttscope.lint import engine
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import segments
from mqttscope.lint.signs import ALL, BITS, SIGNS, signs_of
from mqttscope.mqtt.declare import ControlPacket
from tests.each import each
from tests.lint.lint_help import lint, steps_of, talked

NAMES = {bit: name for name, bit in {**BITS, **SIGNS}.items()}
ASKS, GRANTS = "> subscribe 9 a:1", "< suback 9 1"
SUBSCRIBED = f"{ASKS}; {GRANTS}"
Q1, Q2 = (f"> publish a qos={qos} id=1" for qos in (1, 2))


def signs(monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[set[str]]:
    """Names of the signs of each packet."""
    text_lists: list[set[str]] = []

    def noted(packet: ControlPacket, at: RuleContext) -> int:
        bits = signs_of(packet, at)
        text_lists.append({name for bit, name in NAMES.items() if bits & bit})
        return bits

    monkeypatch.setattr(engine, "signs_of", noted)
    lint([], talked(*steps_of(*lines)))
    return text_lists


@each(
    "text, wanted",
    [
        ("> publish a", set()),
        ("> publish a dup retain", {"dup", "retain", "expires_or_retained"}),
        (r'> publish "a\u0007"', {"odd_strings", "unprintable"}),
        ("> publish a/#", {"odd_strings", "wildcard"}),
        ("> publish spBv1.0/g/NDATA/n", {"sparkplug"}),
        ("< publish spBv1.0/g/NDATA/n", {"sparkplug", "unmatched"}),
        ("> subscribe 9 a:1 spBv1.0/#:0", {"sparkplug"}),
        ("> publish", {"odd_strings", "nameless", "unresolved"}),
        ("> publish a topic_alias=1", {"properties", "odd_alias"}),
        (r'> publish a user_property=k:"\u0007"', {"properties", "odd_strings", "unprintable"}),
        ("> publish a message_expiry_interval=5", {"properties", "expires_or_retained"}),
        (Q1, {"qos"}),
        (f"{Q1}; < puback 1", set()),
        (f"{Q1}; {Q1}", {"qos", "taken"}),
        ("< puback 1", {"odd_answer"}),
        (f"{Q2}; < pubrec 1; > pubrel 1; < pubcomp 1", set()),
        (f"{Q2}; < puback 1", {"odd_answer"}),
        (f"{Q2}; < pubrec 1 code=0x80", {"reason_code"}),
        ("+100 > pingreq", {"silent"}),
        ("< pingreq", {"wrong_sender"}),
        ("< publish a", {"unmatched"}),
        (f"{SUBSCRIBED}; < publish a", set()),
        (f"{SUBSCRIBED}; < publish a qos=2 id=1", {"qos", "above_granted"}),
        ("> disconnect; > pingreq", {"disconnected"}),
        (ASKS, set()),
        (SUBSCRIBED, set()),
        (f"{ASKS}; {ASKS}", {"taken"}),
        (f"{SUBSCRIBED}; {GRANTS}", {"odd_answer", "again"}),
        (f"{ASKS}; < suback 9 2", {"above_requested"}),
        (f"{ASKS}; < suback 9 1 1", {"odd_count"}),
        (f"{ASKS}; < unsuback 9", {"odd_answer"}),
        ("> subscribe 9 a/b+:1", {"odd_filter"}),
        ("> subscribe 9 a/+/#:1", set()),
        ("> unsubscribe 0 $share/a/b", {"odd_filter", "zero_identifier"}),
        ("> suback 9 1", {"odd_answer", "wrong_sender"}),
        ("> connect", {"again"}),
        ("< connack", {"again"}),
    ],
)
def test_a_packet_bears_the_signs_of_what_is_odd_about_it(text: str, wanted: set[str]) -> None:
    from_server = {"from_server"} if text.rpartition("; ")[2].startswith("<") else set()
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert signs(monkeypatch, f"opened keep_alive=60; {text}")[-1] == wanted | from_server


@each(
    "text, wanted",
    [
        ("> pingreq", {"early"}),
        ("> connect; < pingresp", {"early", "from_server"}),
        ("> connect client=- resume", {"odd_connect"}),
        ("> connect 3.1.1 will=spBv1.0/g/NDEATH/n will_payload=x", {"sparkplug"}),
        ("> connect client=c protocol_name=MQIsdp", {"odd_connect"}),
        ("> connect client=c password=x", {"odd_connect"}),
        (r'> connect client="c\u0007"', {"odd_strings", "unprintable"}),
        ("> connect; < connack code=5; > pingreq", {"refused"}),
        ("> connect; < connack code=5", {"reason_code", "from_server"}),
    ],
)
def test_packets_of_a_connection_that_is_not_open_bear_theirs(text: str, wanted: set[str]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert signs(monkeypatch, text)[-1] == wanted


def test_a_usual_connect_and_its_connack_bear_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert signs(monkeypatch, "opened") == [set(), {"from_server"}]


def test_examples_of_rules_have_every_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[str] = set()

    def noted(packet: ControlPacket, at: RuleContext) -> int:
        bits = signs_of(packet, at)
        if bits.bit_count() < ALL.bit_count() // 2:
            met.update(name for bit, name in NAMES.items() if bits & bit)
        return bits

    monkeypatch.setattr(engine, "signs_of", noted)
    for rule in all_rules().values():
        if rule.signs:
            for talk in rule.bad:
                lint([rule()], segments(talk))

    assert met >= SIGNS.keys()
