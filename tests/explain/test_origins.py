"""Where deliveries come from that no captured client published then."""

from __future__ import annotations

from tests.each import each
from tests.explain.running import across, traced
from tests.explain.test_messages import trace
from tests.lint.lint_help import steps_of

WATCHER = "@1 opened client=watch; @1 > subscribe 1 st:1; @1 < suback 1 1"
OLD = "opened client=dev-1 will=st will_payload=off will_retain keep_alive=10"
ONLINE, SHOWN = "@2 > publish st on retain", "@1 < publish st on"
NEW = "+5 @2 opened client=dev-2 will=st will_payload=off will_retain"
WILL = "+11 @1 < publish st off"
LATE = "+1 @3 opened client=late; @3 > subscribe 1 st:0; @3 < suback 1 0; @3 < publish st off retain"
WAITS = "+2 @1 > pingreq; @1 < pingresp"
STORY = (WATCHER, OLD, NEW, ONLINE, SHOWN, WILL, "+0.0002 < fin", LATE, WAITS)


def test_a_will_that_comes_before_the_end_of_its_connection_and_replaces_a_newer_message() -> None:
    shown = traced("st", *steps_of(*STORY))
    (message,) = shown.messages
    late = next(delivery for delivery in message.deliveries if delivery.client == "late")

    assert str(late.fate) == "not_concerned"
    assert "; by then the will of dev-1 (frame " in late.outcome
    assert any(
        "the broker ended its #1 0.2 ms after the delivery; also to late (frame " in line for line in shown.remarks
    )
    (line,) = (line for line in shown.remarks if line.startswith("The will of dev-1 (#1, frame "))
    assert "came 11.010 s after dev-2 had published to st (frame " in line
    assert "It replaced that retained message (Will Retain 1)." in line


@each(
    "old, new",
    [
        # A client ends its connection itself, or the end comes too late: somebody unseen published the message.
        ("+0.0002 < fin", "+0.0002 > fin"),
        ("+0.0002 < fin", "+0.0002 > disconnect; < fin"),
        ("+0.0002 < fin", "+1.1 < fin"),
        # There is no will, or it has another payload.
        ("will_payload=off", "will_payload=gone"),
    ],
)
def test_what_is_not_the_will_of_a_connection(old: str, new: str) -> None:
    lines = [line.replace(old, new) for line in STORY if line != LATE]
    shown_lines = traced("st", *steps_of(*lines)).remarks

    assert not any("the will of a connection" in line or line.startswith("The will of") for line in shown_lines)


@each(
    "old, new",
    [
        ("dev-2", "dev-1"),  # the session was taken over
        ("client=dev-2 will=st will_payload=off will_retain", "client=dev-2"),
        ("@2 > publish st on retain", "@2 > publish st on retain; > pingreq"),  # the old one was alive
    ],
)
def test_a_will_that_is_not_of_a_device_which_is_back(old: str, new: str) -> None:
    shown_lines = traced("st", *steps_of(*(line.replace(old, new) for line in STORY))).remarks

    assert not any(line.startswith("The will of") for line in shown_lines)


@each("user, is_device", [(" user_name=u", True), ("", False)])
def test_a_device_at_another_address_is_known_by_its_user_name(user: str, is_device: bool) -> None:
    lines = [line.replace("will_retain", f"will_retain{user}") for line in STORY]
    shown_lines = across("st", {0: (1, 9), 1: (2, 9), 2: (3, 9), 3: (4, 9)}, *lines).remarks

    assert any(line.startswith("The will of") for line in shown_lines) is is_device


READER = "opened client=reader; > subscribe 1 a:0; < suback 1 0"
SET = "@1 opened client=writer; @1 > publish a x retain; < publish a x"
AGAIN = "> subscribe 2 a:0; < suback 2 0; < publish a x retain"
OTHER = (
    "@2 opened client=other; @2 > subscribe 1 a:0; @2 < suback 1 0; @2 < publish a x retain; @2 < publish a x retain"
)


def copies(*lines: str) -> list[str]:
    return [line for line in trace(*lines, topic="a").remarks if "a retained message that was published before" in line]


def test_each_client_that_asked_for_a_retained_copy_is_named() -> None:
    (line,) = copies(READER, SET, AGAIN, OTHER)

    assert "; writer published that in frame 13, and the new SUBSCRIBE of reader (frame 15) asked for it" in line
    assert "; also to other (frame " in line


@each("asks", ["2 a:0,retain_handling=2", "2 a:0,retain_as_published"])
def test_a_subscribe_that_did_not_cause_a_retained_copy(asks: str) -> None:
    (line,) = copies(READER, SET, AGAIN.replace("2 a:0", asks))

    assert "asked for it" not in line


DEVICE = "3.1.1 client=dev keep_alive=10 will=st will_payload=off will_retain"
GONE = f"opened {DEVICE}; > publish st on retain; @1 opened 3.1.1 client=ha; @1 > subscribe 1 st:0; @1 < suback 1 0"
DIES, BACK, WAITS = "+15 < fin; @1 < publish st off", f"+5 @2 opened {DEVICE}", "+3 @2 > pingreq; @2 < pingresp"
ASKS = "+1 @3 opened 3.1.1 client=late; @3 > subscribe 1 st:0; @3 < suback 1 0; @3 < publish st off retain"


@each(
    "lines, words",
    [
        ((GONE, DIES, BACK, WAITS), "it has not published to it since."),
        ((GONE, DIES, BACK, WAITS, ASKS), "it has not published to it since; late got the will in frame "),
        ((GONE.replace(" retain;", ";"), DIES, BACK, "@2 > publish st on", WAITS, ASKS), "with RETAIN 0 only (frame "),
        # It publishes its state, is back too short, or not; the will is not retained; it had no state.
        ((GONE, DIES, BACK, "@2 > publish st on retain", WAITS), ""),
        ((GONE, DIES, BACK), ""),
        ((GONE, DIES, "+5 @1 > pingreq"), ""),
        ((GONE.replace(" will_retain", ""), DIES, BACK, WAITS), ""),
        ((GONE.replace("> publish st on retain; ", ""), DIES, BACK, WAITS), ""),
    ],
)
def test_a_will_that_its_client_does_not_replace(lines: tuple[str, ...], words: str) -> None:
    rows = [line for line in traced("st", *steps_of(*lines)).remarks if line.startswith("The retained message of st")]

    assert len(rows) == bool(words)
    assert all("is the will of dev (#0, frame " in row and words in row for row in rows)


@each(
    "loses, is_doubtful",
    [("lost @1 > publish a y", True), ("lost @0 < publish a y", False), ("@1 > pingreq", False)],
)
def test_a_publish_may_be_among_lost_bytes_of_a_client(loses: str, is_doubtful: bool) -> None:
    writer = "@1 opened client=writer; @1 > publish a x; < publish a x"
    remarks = trace(READER, writer, loses, "@1 > pingreq; < publish a y; < publish a z", topic="a").remarks
    (line,) = (line for line in remarks if "that no captured client published" in line)

    assert (", or the capture lacks the PUBLISH, since it lacks bytes" in line) is is_doubtful
