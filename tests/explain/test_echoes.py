"""A client that publishes what it receives through its own subscription."""

from __future__ import annotations

from mqttscope.explain import Explainer
from mqttscope.mqtt.packets import Publish
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.each import each
from tests.explain.running import explained, of_segments
from tests.lint.lint_help import steps_of

BEGIN = "opened 3.1.1 client=hub; > subscribe 1 light:0; < suback 1 0"
ROUND = "+0.0003 < publish light on; +0.05 > publish light on"
FAST = "+0.0003 < publish light on; +0.0049 > publish light on"


def remarks(*lines: str, running: Explainer | None = None) -> list[str]:
    running = running or Explainer()
    explained(*steps_of(*lines), explainer=running)
    return [remark for remark in running.totals.remarks if "a loop through its own subscription" in remark]


@each(
    "lines, is_loop",
    [
        ([BEGIN, f"for 1..20: {ROUND}"], True),
        # Too few, too slow, and late after the delivery.
        ([BEGIN, f"for 1..19: {ROUND}"], False),
        ([BEGIN, "for 1..20: +0.6 < publish light on; +0.6 > publish light on"], False),
        ([BEGIN, "for 1..20: < publish light on; +1.1 > publish light on"], False),
        # A bridge, and No Local: the broker does not return the client's own messages.
        ([BEGIN.replace("3.1.1", "3.1.1 protocol_level=0x84"), f"for 1..20: {ROUND}"], False),
        (["opened; > subscribe 1 light:0,no_local; < suback 1 0", f"for 1..20: {ROUND}"], False),
        # The client began itself, has it from a retained message, sends other values, or is one of two publishers.
        ([BEGIN, "> publish light on", f"for 1..20: {ROUND}"], False),
        # It began itself, and each further one comes within 5 ms of a delivery, as a bridge's: 20 in a row.
        ([BEGIN, "> publish light on", f"for 1..20: {FAST}"], True),
        ([BEGIN, "> publish light on", f"for 1..19: {FAST}"], False),
        ([BEGIN, "> publish light on", f"for 1..20: {FAST.replace('0.0049', '0.0051')}"], False),
        ([BEGIN, "> publish light on", f"for 1..10: {FAST}", "> publish light on", f"for 1..15: {FAST}"], False),
        ([BEGIN, "< publish light on retain", "for 1..20: > publish light on; < publish light on"], False),
        ([BEGIN, "for 1..20: < publish light on; > publish light {n}"], False),
        ([BEGIN, "for 1..20: < publish light on; > publish light/state on"], False),
        ([BEGIN, "for 1..20: +0.01 < publish light on; < publish light on; +0.05 > publish light on"], False),
        ([BEGIN, "for 1..20: < publish light on qos=1 id=1 dup; > puback 1; > publish light on"], False),
    ],
)
def test_a_loop_through_a_subscription(lines: list[str], is_loop: bool) -> None:
    running = Explainer()
    result = remarks(*lines, running=running)

    assert len(result) == is_loop
    assert running.totals.loop.startswith("heuristic: hub (#0) published a message 20 times" if is_loop else "")
    assert bool(running.totals.loop) is is_loop
    if is_loop:
        assert "hub (#0) published a message 20 times within " in result[0]
        assert "PUBLISH q0 light (" in result[0]


@each("asks, is_held", [(False, True), (True, False)])
def test_an_answer_to_what_just_came_was_not_held_back(asks: bool, is_held: bool) -> None:
    """The broker sends a small segment right after a late acknowledgment, or (``asks``) after a message."""
    talk, running = Conversation().open().whole().ack(CLIENT), Explainer()
    for number in range(12):
        talk.say(SERVER, Publish(topic_name="a", payload=b"%d" % number))
        talk.wait(0.04).ack(CLIENT)
        if asks:
            talk.say(CLIENT, Publish(topic_name="b", payload=b"%d" % number))
    of_segments(numbered(talk.tape.segments), running)

    assert any("held back a small segment" in remark for remark in running.totals.remarks) is is_held
