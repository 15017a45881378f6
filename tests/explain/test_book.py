"""What connections have to do with each other."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.explain import Cause, Explanation
from mqttscope.explain.model import Certainty
from mqttscope.mqtt.packets import Connect, Disconnect, Pingreq, Publish, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from tests.dissect.talk import CONNACK, Talk, Tape
from tests.each import each
from tests.explain.running import explained, of_segments
from tests.lint.lint_help import steps_of

WILL = "opened will=status/c1 will_payload=gone; @1 opened client=watch; @1 > subscribe 1 status/#; @1 < suback 1 0"


def test_a_published_will_is_told_with_the_connection_that_received_it() -> None:
    for goodbye, wills in (("", 1), ("> disconnect", 0)):
        explanation = explained(*steps_of(WILL, f"{goodbye}; > fin; +0.5 @1 < publish status/c1 gone"))[0]

        beginning = "the will was published: status/c1, as connection #1 received it"
        assert [afterward.text.startswith(beginning) for afterward in explanation.afterwards] == [True] * wills


def test_the_return_of_a_client_is_told_if_it_is_a_consequence() -> None:
    soon, late = (explained(*steps_of("opened; > fin", f"+{after} @1 > connect"))[0] for after in (7, 500))

    assert [afterward.text[:24] for afterward in soon.afterwards] == ["the client came back 7.0"]
    assert late.afterwards == ()


def test_a_takeover_is_told_though_many_connections_of_the_client_follow() -> None:
    fight = (f"+1 @{number} opened client=c; @{number - 1} < fin" for number in range(1, 40))
    assert explained(*steps_of("opened client=c", *fight))[0].cause is Cause.TAKEN_OVER


@each("frame", ["lost > pingreq", "lost < pingresp", ""])
def test_a_will_that_is_published_in_the_moment_of_the_end(frame: str) -> None:
    """With a frame missing the end is noticed after the delivery."""
    reader = "@1 opened 3.1.1 client=sub; @1 > subscribe 1 w:0; @1 < suback 1 0"
    lines = [reader, "opened 3.1.1 client=c2 will=w will_payload=bye", frame, "> fin; @1 < publish w bye"]
    explanations = explained(*steps_of("; ".join(line for line in lines if line)))

    assert any("the will was published" in afterward.text for end in explanations for afterward in end.afterwards)


READER = "@9 opened client=r"
FIRST = "opened client=c will=w will_payload=off"
TAKEOVER = "@1 > connect client=c will=w will_payload=off"


def published_wills(*lines: str) -> list[list[str]]:
    """The sentences about published wills, by connection in the order of their beginning."""
    ends = sorted(explained(*steps_of(READER, *lines)), key=lambda end: end.connection)
    return [
        [afterward.text for afterward in end.afterwards if "the will was published" in afterward.text]
        for end in ends[1:]
    ]


def test_the_will_of_a_taken_over_connection_comes_before_its_end() -> None:
    again = "@1 < connack; @1 > publish w on retain; @9 < publish w on"
    first, *_ = published_wills(FIRST, f"{TAKEOVER}; @9 < publish w off; < fin; > fin", again)
    second = published_wills(FIRST, f"{TAKEOVER}; < fin; > fin; @9 < publish w off; {again}")[0]

    assert [text.rpartition(" ")[0][-10:] for text in first] == ["before the"]
    assert [text.rpartition(" ")[0][-9:] for text in second] == ["after the"]


@each(
    "line",
    [
        "> reset; @9 < publish w on",  # another content
        "> reset; @9 < publish w off retain",  # a stored message
        "> reset; +11 @9 < publish w off",
        "@9 < publish w off; > reset",  # nobody had taken the session over
        "> publish w off; > reset; @9 < publish w off",  # the client published it itself
    ],
)
def test_messages_that_are_no_will(line: str) -> None:
    assert published_wills(FIRST, line) == [[]]


def test_two_readers_of_one_will_are_no_two_wills() -> None:
    lines = ("@8 opened client=s", FIRST, "@2 opened client=d will=w will_payload=off", "> reset; @2 > reset")
    once = published_wills(*lines, "@9 < publish w off; @8 < publish w off")
    twice = published_wills(*lines, "@9 < publish w off; @8 < publish w off; @9 < publish w off")

    assert sum(map(len, once)) == 1
    assert sum(map(len, twice)) == 2


DEVICE = "> subscribe 1 set/7:0; < suback 1 0"


@each("will, subscribes", [("will=w", ""), ("", DEVICE), ("will=w", DEVICE)])
def test_a_client_that_is_back_under_another_identifier(will: str, subscribes: str) -> None:
    again = "; ".join(f"@1 {step}" for step in subscribes.split("; ") if step)
    end = explained(
        *steps_of(
            f"opened 3.1.1 keep_alive=10 client=a {will}; {subscribes}".rstrip("; "),
            f"+3 @1 > connect 3.1.1 client=b {will}; @1 < connack; {again}".rstrip("; "),
            "+6 @1 > pingreq; +6 @1 > pingreq; < fin",
        )
    )[0]

    assert (end.cause, end.first.certainty) == (Cause.KEEP_ALIVE, Certainty.LIKELY)
    assert "the same host was back as b 3.0" in end.first.headline
    assert end.first.advice[0].startswith("Keep one Client Identifier")


def test_a_client_that_is_back_under_another_identifier_and_gone_before_the_old_end_is_over() -> None:
    """Nothing answers the FIN of the server, so that the old connection is over after the new one."""
    tape, will = Tape(), Will(will_topic="w", will_payload=b"off")
    old, new = Talk(tape).handshake(), Talk(tape, client_port=50_001)
    old.client(Connect(client_identifier="a", keep_alive=10, will=will))
    old.server(CONNACK)
    tape.wait(3)
    new.handshake().client(Connect(client_identifier="b", will=will))
    new.server(CONNACK)
    tape.wait(12)
    old.fin("server")
    tape.wait(5)
    new.client(Disconnect())
    new.close("client")
    end = of_segments(tape.segments)[0]

    assert "the same host was back as b 3.0" in end.first.headline


@each(
    "lines",
    [
        ["opened 3.1.1 keep_alive=10 client=a will=w", "+3 @1 opened 3.1.1 client=b will=v", "+12 < fin"],
        ["opened 3.1.1 keep_alive=10 client=a", "+3 @1 opened 3.1.1 client=b", "+12 < fin"],
        # Two programs of the host, or two devices at one NAT.
        [
            "opened 3.1.1 keep_alive=10 client=a will=w", "+3 @1 opened 3.1.1 client=b will=w", "+3 > pingreq",
            "+15 < fin",
        ],
        [
            "@1 opened 3.1.1 client=b will=w", "opened 3.1.1 keep_alive=10 client=a will=w", "+1 @1 > pingreq",
            "+3 @2 opened 3.1.1 client=c will=w", "+12 < fin",
        ],
        # It was back after the end, or gone again.
        ["opened 3.1.1 keep_alive=10 client=a will=w", "+15 < fin", "+1 @1 opened 3.1.1 client=b will=w"],
        [
            "opened 3.1.1 keep_alive=10 client=a will=w", "+3 @1 opened 3.1.1 client=b will=w", "@1 > disconnect",
            "@1 > fin; @1 < fin", "+12 < fin",
        ],
    ],
)  # fmt: skip
def test_a_client_that_nothing_shows_to_be_the_same(lines: list[str]) -> None:
    end = next(end for end in explained(*steps_of(*lines)) if end.client_identifier == "a")

    assert end.cause is Cause.KEEP_ALIVE
    assert "was back as" not in end.first.headline


def moved(change: str = "") -> Explanation:
    """A device with credentials and a will is back at another address under another Client Identifier."""
    tape = Tape()
    will = Will(will_topic="w", will_payload=b"off", will_retain=change != "not retained")
    watching = Talk(tape, client_port=50_009).handshake()
    watching.client(
        Connect(client_identifier="watch"), Subscribe(packet_identifier=1, subscriptions=[Subscription("w")])
    )
    watching.server(CONNACK)
    old = Talk(tape).handshake()
    old.client(Connect(client_identifier="a", keep_alive=10, will=will, user_name="u", password=b"p"))
    old.server(CONNACK)
    tape.wait(3)
    new = Talk(tape, client_port=50_001, client="198.51.100.7").handshake()
    if change == "other user":
        new.client(Connect(client_identifier="b", will=will, user_name="v", password=b"p"))
    elif change == "other will":
        new.client(
            Connect(client_identifier="b", will=replace(will, will_payload=b"gone"), user_name="u", password=b"p")
        )
    else:
        new.client(Connect(client_identifier="b", will=will, user_name="u", password=b"p"))
    new.server(CONNACK)
    new.client(Publish(topic_name="w", payload=b"on", retain=change != "not stored"))
    if change == "both are there":
        old.client(Pingreq())
    tape.wait(15 if change == "both are there" else 12)
    old.fin("server")
    watching.server(Publish(topic_name="w", payload=b"off"))
    if change == "corrected":
        new.client(Publish(topic_name="w", payload=b"on", retain=True))
    return next(end for end in of_segments(tape.segments) if end.client_identifier == "a")


@each(
    "change, is_back, is_replaced",
    [
        ("", True, True), ("not retained", True, False), ("not stored", True, False), ("corrected", True, False),
        ("other user", False, False), ("other will", False, False), ("both are there", False, False),
    ],
)  # fmt: skip
def test_a_late_will_of_a_device_that_is_back_at_another_address(change: str, is_back: bool, is_replaced: bool) -> None:
    end = moved(change)
    headline = end.first.headline

    assert ("most probably the same device was back as b 3.0" in headline) is is_back
    assert headline.endswith("and the late will replaced its retained message.") is is_replaced
    assert (
        any(advice.startswith("Let the device publish its state again") for advice in end.first.advice) is is_replaced
    )
