"""Reasons why a client that subscribed later rightly got no copy of a retained message."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of
from tests.triage.running import gathered

SETS = "opened client=w; > publish a x retain qos=1 id=1; < puback 1"
READS = "+1 @1 opened client=r; @1 > subscribe 1 a:0; @1 < suback 1 0; +5 @1 > pingreq; @1 < pingresp"
OTHER = (
    "@2 > connect client=o will=a will_payload=off will_retain will.will_delay_interval={}"
    " session_expiry_interval={}; @2 < connack; @2 > fin"
)
BACK = "@3 > connect client=o resume session_expiry_interval=60; @3 < connack present"
REPLACED, BY_WILL = "; by then frame * had replaced this *", "; by then the will of frame * had replaced this *"
WILL = SETS.replace("client=w", 'client=w will=a will_payload="{}" will_retain')


@each(
    "sets, reads, fate, outcome",
    [
        (SETS.replace("puback 1", "puback 1 code=0x87"), READS, "message_refused", "; the broker had refused the *"),
        (SETS.replace("retain", "retain message_expiry_interval=1"), f"+1 {READS}", "expired", "; * had expired *"),
        (SETS.replace("retain", "retain message_expiry_interval=60"), f"+1 {READS}", "not_sent", ", and the broker *"),
        (SETS, READS.replace(":0", ":0,retain_handling=2"), "not_concerned", " with Retain Handling 2: *"),
        (SETS, READS.replace(":0", ":0,retain_handling=1"), "subscribed_later", ""),
        (SETS, READS.replace("client=r", "client=r maximum_packet_size=5"), "too_large", ", and takes packets of at *"),
        # Its copy with QoS 0 has two bytes less than with QoS 1.
        (SETS, READS.replace("client=r", "client=r maximum_packet_size=7"), "subscribed_later", ""),
        (SETS, READS.replace("client=r", "client=r maximum_packet_size=6"), "too_large", ", and takes *"),
        (SETS, READS, "not_sent", ", and the broker did not send it this retained message (3.3.1.3) *"),
        # A will removes or replaces it, unless a DISCONNECT discards the will.
        (f"{WILL.format('')}; > fin", READS, "not_concerned", "; by then the will of frame * had removed this *"),
        (f"{WILL.format('gone')}; > fin", READS, "not_concerned", "; by then the will of frame * had replaced this *"),
        (f"{WILL.format('')}; > disconnect; > fin", READS, "subscribed_later", ""),
        (f"{WILL.format('').replace(' will_retain', '')}; > fin", READS, "subscribed_later", ""),
        (WILL.format(""), READS, "subscribed_later", ""),
        (f"{SETS}; {OTHER.format(0, 60)}", READS, "not_concerned", BY_WILL),
        (f"{SETS}; {OTHER.format(0, 60).replace('connack', 'connack code=0x87')}", READS, "subscribed_later", ""),
        (f"{SETS}; {OTHER.format(0, 60).replace('@2 < connack; ', '')}", READS, "subscribed_later", ""),
        # Its Will Delay Interval passes, or the session ends; a client that is back in time has no will.
        (f"{SETS}; {OTHER.format(1, 60)}", f"+1 {READS}", "not_concerned", BY_WILL),
        (f"{SETS}; {OTHER.format(30, 60)}", f"+1 {READS}", "subscribed_later", ""),
        (f"{SETS}; {OTHER.format(30, 0)}", f"+1 {READS}", "not_concerned", BY_WILL),
        (f"{SETS}; {OTHER.format(3, 60)}; +1 {BACK}", f"+4 {READS}", "subscribed_later", ""),
        (f"{SETS}; {OTHER.format(1, 60)}; +2 {BACK}", f"+4 {READS}", "not_concerned", BY_WILL),
        # A message that the broker took replaces it.
        (f"{SETS}; > publish a y retain qos=1 id=2; < puback 2", READS, "not_concerned", REPLACED),
        (f"{SETS}; > publish a y retain qos=1 id=2; < puback 2 code=0x87", READS, "not_sent", ", and the broker *"),
        (f"{SETS}; > publish a y retain qos=2 id=2; < pubrec 2; > pubrel 2", READS, "not_concerned", REPLACED),
        (f"{SETS}; > publish a y retain qos=2 id=2; < pubrec 2", READS, "subscribed_later", ""),
        (f"{SETS.replace('puback 1', 'puback 1 code=0x87')}; > publish a y retain", READS, "message_refused", "; *"),
    ],
)  # fmt: skip
def test_why_no_retained_message_came(sets: str, reads: str, fate: str, outcome: str) -> None:
    (row,) = traced("a", *steps_of(sets, reads)).messages[0].deliveries

    assert row.fate == fate
    assert fnmatchcase(row.outcome, f"subscribed to a * later{outcome}"), row.outcome


@each("answer, text", [
    ("< puback 2", "the message removes the retained one"),
    ("< puback 2 code=0x87", "refused the message (0x87), and it removed no retained message"),
])  # fmt: skip
def test_a_removal_that_the_broker_takes_or_refuses(answer: str, text: str) -> None:
    (row,) = traced("a", *steps_of(f'{SETS}; > publish a "" retain qos=1 id=2; {answer}', READS)).messages[1].deliveries

    assert row.fate == "not_concerned"
    assert text in row.outcome


LATE = "+1 @4 opened client=l; @4 > subscribe 1 a:0; @4 < suback 1 0; @4 < publish a x retain"


@each("lines, fate", [
    ((OTHER.format(0, 60), READS, LATE), "not_sent"),
    ((OTHER.format(0, 60), LATE, READS), "subscribed_later"),
    ((LATE, OTHER.format(0, 60), READS), "not_concerned"),
])  # fmt: skip
def test_a_later_delivery_contradicts_a_will(lines: tuple[str, ...], fate: str) -> None:
    rows = traced("a", *steps_of(SETS, *lines)).messages[0].deliveries

    assert [str(row.fate) for row in rows if row.client == "r"] == [fate]


def test_a_delivery_of_another_copy_does_not_contradict_a_will() -> None:
    again = "> publish a x retain qos=1 id=2; < puback 2"
    shown = traced("a", *steps_of(SETS, OTHER.format(0, 60), READS, again, LATE))

    assert not any("the broker kept it" in row.outcome for message in shown.messages for row in message.deliveries)


@each("sets, reads, is_lost", [
    (SETS, READS, True),
    (SETS, READS.replace(":0", ":0,retain_handling=2"), False),
    (SETS.replace("qos=1", "qos=1 message_expiry_interval=1"), f"+1 {READS}", False),
    (f'{SETS}; > publish a "" retain qos=1 id=2; < puback 2', READS, False),
    (f"{WILL.format('')}; > fin", READS, False),
    (SETS, READS.replace("0; +5", "0; @1 < publish a x retain; +5"), False),
])  # fmt: skip
def test_a_retained_message_that_did_not_come_is_a_loss(sets: str, reads: str, is_lost: bool) -> None:
    losses = [fault for fault in gathered(sets, reads).faults if fault.who == "r"]

    assert [fault.text.partition(":")[0] for fault in losses] == ["did not get the message to a of w"] * is_lost
