"""Why edge nodes of Sparkplug B are offline or stale, and why hosts request rebirths."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.explain import Explainer
from mqttscope.explain.edge_nodes import MAX_ANSWERS, NodeWatch
from mqttscope.explain.model import Certainty, NodeAnswer
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import conversation, segments
from tests.each import each
from tests.lint.lint_help import steps_of

EDGE = (
    "opened 3.1.1 client=e will=spBv1.0/g/NDEATH/e will_payload=spb(bdSeq:Int64=0) will_qos=1"
    "; > subscribe 1 spBv1.0/g/NCMD/e:1; < suback 1 1"
)
REBIRTH = 'spBv1.0/g/NCMD/e spb("Node Control/Rebirth"=true)'
BIRTH = 'spBv1.0/g/NBIRTH/e spb(seq=0 bdSeq:Int64=0 "Node Control/Rebirth":Boolean=false T#7:Int32=20)'
DATA = "spBv1.0/g/NDATA/e spb(seq={} T=21)"
DEATH = "spBv1.0/g/NDEATH/e spb(bdSeq:Int64={})"
HOST = "@1 opened 3.1.1 client=h; @1 > subscribe 1 spBv1.0/#:1; @1 < suback 1 1"
BORN = f"{EDGE}; > publish {BIRTH}"
SEEN = f"@1 < publish {BIRTH}"
ASKED = f"@1 > publish {REBIRTH}"


def watched(*lines: str) -> NodeWatch:
    """The watch after a conversation."""
    watch, explainer = NodeWatch(), Explainer()
    linter = Linter([watch.observer], strict=True)
    is_late = any("midstream" in line for line in lines)
    source = explainer.watch.segments(segments(conversation("", *steps_of(*lines), handshake=not is_late)))
    for event in dissect_segments(source):
        for explanation in explainer.feed(event, linter.feed(event)):
            watch.note_end(explanation)
    for explanation in explainer.close():
        watch.note_end(explanation)
    return watch


def answers(*lines: str) -> list[NodeAnswer]:
    return watched(*lines).answers()


def sentences(*lines: str) -> list[str]:
    """Question, certainty and headline of each answer."""
    return [f"{answer.question}, {answer.certainty}: {answer.headline}" for answer in answers(*lines)]


def test_the_will_of_an_edge_node_makes_it_offline() -> None:
    (answer,) = answers(HOST, BORN, SEEN, "> reset", f"@1 < publish {DEATH.format(0)}")

    assert (answer.node, answer.question, answer.certainty) == ("g/e", "offline", "likely")
    assert answer.headline.endswith(", and the broker published its will; hosts have to show it as offline.")
    assert [row.text for row in answer.reasons] == [
        "The client reset the connection (RST) without a DISCONNECT", "h received NDEATH with bdSeq 0",
    ]  # fmt: skip
    assert all(row.frame and row.capture is not None for row in answer.reasons)
    assert answer.connections == (1,)
    assert answer.advice


def test_an_edge_node_that_comes_back_is_shown_with_its_birth() -> None:
    (answer,) = answers(HOST, BORN, SEEN, f"> publish {DEATH.format(0)}; +1 > publish {BIRTH}")

    assert answer.headline == "It published its NDEATH itself; hosts have to show it as offline."
    assert [row.text for row in answer.reasons] == [
        "e published NDEATH with bdSeq 0", "back: e published NBIRTH with bdSeq 0",
    ]  # fmt: skip


RESET = "Connection #{} ended (client reset, likely)"
AGAIN = "+1 " + BORN.replace("opened", "@2 opened").replace("; ", "; @2 ")


@each(
    "lines, question, before, after",
    [
        (
            [BORN, f"> publish {DEATH.format(1)}"], "stale, likely: ", "It published its NDEATH itself",
            "; hosts ignore it, because its bdSeq is 1, and 0 in the NBIRTH.",
        ),
        (
            [BORN, "> disconnect; > fin; < fin"], "stale, likely: ", "Connection #0 ended (normal, certain)",
            " without an NDEATH: the broker drops the will, and hosts still have the edge node as online.",
        ),
        (
            [f"opened 3.1.1 client=e; > publish {BIRTH}; > reset"], "stale, likely: ", RESET.format(0),
            ", and its CONNECT had no NDEATH as the will: hosts still have the edge node as online.",
        ),
        (
            [BORN, "> reset"], "offline, likely: ", RESET.format(0),
            "; its will is the NDEATH, and the capture has no delivery of it.",
        ),
        (
            [HOST, f"@1 < publish {DEATH.format(0)}"], "offline, hypothesis: ",
            "Its NDEATH was delivered, and the capture does not show the connection that it belongs to",
            "; hosts have to show it as offline if its bdSeq is the one of the NBIRTH, which the capture lacks.",
        ),
        (
            [HOST, BORN, SEEN, f"> reset; {AGAIN}", SEEN, f"@1 < publish {DEATH.format(0)}"], "offline, likely: ",
            f"{RESET.format(1)}, and the broker published its will; hosts have to show it as offline",
            " although it is connected as #2: both connections have bdSeq 0.",
        ),
    ],
)  # fmt: skip
def test_deaths(lines: list[str], question: str, before: str, after: str) -> None:
    assert sentences(*lines) == [question + before + after]


def test_the_late_death_of_an_earlier_connection_is_not_a_question() -> None:
    again, seen = (text.replace("bdSeq:Int64=0", "bdSeq:Int64=1") for text in (AGAIN, SEEN))

    assert answers(HOST, BORN, SEEN, f"> reset; {again}", seen, f"@1 < publish {DEATH.format(0)}") == []


@each(
    "lines, reason, certainty",
    [
        ([HOST, BORN, SEEN, f"@1 < publish {DATA.format(2)}"], " after sequence numbers that do not follow", "likely"),
        ([HOST, BORN, f"@1 < publish {DATA.format(2)}"], "; it had received no NBIRTH of the edge node", "likely"),
        ([HOST, f"@1 < publish {DATA.format(2)}"], " after data without a birth on its connection.", "likely"),
        ([HOST, BORN, SEEN, "@1 < publish spBv1.0/g/NDATA/e spb(seq=1 X=21)"], " after data with a metric", "likely"),
        ([HOST, BORN, SEEN, "@1 < publish spBv1.0/g/NDATA/e spb(seq=1 #9=21)"], " after data with a metric", "likely"),
        ([HOST, BORN, SEEN, "@1 < publish spBv1.0/g/DDATA/e/d spb(seq=1 #9=21)"], " after data of a device", "likely"),
        ([HOST, BORN, SEEN, "@1 < publish spBv1.0/g/NDATA/e xyz"], " after a message that cannot be read.", "likely"),
        (
            [HOST, BORN, SEEN, f"@1 < publish {DEATH.format(0)}; @1 < publish {DATA.format(1)}"],
            " after a message of an edge node that was offline", "likely",
        ),
        ([HOST, BORN, SEEN, f"@1 < publish {DEATH.format(0)}"], " after the NDEATH of the edge node.", "likely"),
        ([HOST, BORN], "; it had received no NBIRTH of the edge node on its connection.", "hypothesis"),
        # Nothing that the host received was captured.
        (["@1 > connect client=h", BORN, f"> publish {DATA.format(5)}"], " after sequence numbers", "hypothesis"),
        # Two subscriptions of the host give it a message twice.
        ([HOST, BORN, SEEN, *[f"@1 < publish {DATA.format(1)}"] * 2], "; nothing in the capture shows why.", None),
        ([HOST, BORN, SEEN, f"@1 < publish {DATA.format(1)}"], "; nothing in the capture shows why.", None),
        ([HOST, BORN, SEEN, f"lost @1 < publish {DATA.format(1)}; @1 < publish {DATA.format(2)}"], "; nothing", None),
    ],
)  # fmt: skip
def test_the_reason_of_a_rebirth_request_is_in_what_the_host_received(
    lines: list[str], reason: str, certainty: str | None
) -> None:
    rebirths = [answer for answer in answers(*lines, ASKED) if answer.question == "rebirth"]

    assert len(rebirths) == 1
    assert rebirths[0].headline.partition("requested a rebirth")[2].startswith(reason)
    assert rebirths[0].headline.endswith("It has no answer in the capture.")
    assert rebirths[0].certainty == certainty


@each(
    "lines",
    [
        [HOST, f"@1 < publish {DEATH.format(0)} retain", BORN],
        [HOST, BORN, "@2 opened 3.1.1 client=janitor", f"@2 > publish {DEATH.format(0)}"],
        [HOST, BORN, SEEN, f"@1 < publish {DEATH.format(4)}"],
        [BORN, f"lost > publish {DEATH.format(0)}; > disconnect; > fin; < fin"],
        [HOST, BORN, SEEN, f"lost > publish {DEATH.format(0)}; @1 < publish {DEATH.format(0)}; > disconnect; > fin"],
        ["opened 3.1.1 client=gateway", f"> publish {BIRTH}", f"> publish {BIRTH.replace('/e', '/f')}", "> disconnect"],
    ],
)
def test_nothing_is_concluded_from_what_may_belong_to_another_time_or_client(lines: list[str]) -> None:
    assert answers(*lines) == []


def test_a_disconnect_may_ask_for_the_will() -> None:
    born = BORN.replace("opened 3.1.1", "opened 5.0").replace("suback 1 1", "suback 1 1")

    assert sentences(born, "> disconnect code=4; > fin; < fin") == [
        (
            "offline, likely: Connection #0 ended (normal, certain); its will is the NDEATH, and the capture has no"
            " delivery of it."
        )
    ]


def test_the_birth_of_the_next_connection_is_no_answer() -> None:
    (rebirth,) = (
        row
        for row in answers(HOST, BORN, f"{ASKED}; < publish {REBIRTH}; > reset; {AGAIN}")
        if row.question == "rebirth"
    )

    assert rebirth.headline.endswith(" It has no answer in the capture.")
    assert not any("answered" in row.text for row in rebirth.reasons)
    assert rebirth.reasons[-1].text == (
        "no answer, because it is due on a new connection: e published NBIRTH with bdSeq 0"
    )


HOST_5 = HOST.replace("3.1.1", "5.0")
DELIVERED = f"< publish {REBIRTH}"
REFUSED = f"{ASKED} qos=1 id=7; @1 < puback 7 code=0x87"
LATE = "midstream; version 3.1.1; > pingreq; < pingresp"
BIRTH_1, AGAIN_1, SEEN_1 = (text.replace("bdSeq:Int64=0", "bdSeq:Int64=1") for text in (BIRTH, AGAIN, SEEN))


@each(
    "lines, outcome, last",
    [
        ([HOST_5, BORN, SEEN, REFUSED], "It was refused.", "the broker refused the rebirth request: PUBACK 0x87 Not"),
        (
            [HOST_5, BORN, SEEN, f"{ASKED} qos=2 id=7; @1 < pubrec 7 code=0x97; +1 > publish {BIRTH}"],
            "It was refused.", "the broker refused the rebirth request: PUBREC 0x97 Quota exceeded",
        ),
        (
            [HOST, BORN.replace("3.1.1", "5.0"), ASKED, f"{DELIVERED} qos=1 id=3; > puback 3 code=0x80"],
            "It was refused.", "e refused the rebirth request: PUBACK 0x80 Unspecified error",
        ),
        # The refusal of another message, and an acknowledgment that accepts.
        (
            [HOST_5, BORN, f"{ASKED} qos=1 id=7; @1 > publish a x qos=1 id=8; @1 < puback 8 code=0x87; @1 < puback 7"],
            "It has no answer in the capture.", "h published the rebirth request",
        ),
        (
            [HOST, BORN, SEEN, ASKED, "@1 > reset"],
            "It was not delivered.", "connection #0 ended, and TCP had not acknowledged the request",
        ),
        (
            [HOST, BORN, SEEN, f"{ASKED}; @1 < pingresp", "@1 > reset"],
            "It has no answer in the capture.", "h published the rebirth request",
        ),
        (
            [HOST, BORN, SEEN, ASKED, "> reset"],
            "It was not delivered.", "connection #1 of the edge node ended; the request was not delivered on it",
        ),
        (
            [HOST, BORN, SEEN, ASKED, f"{DELIVERED}; > pingreq; > reset"],
            "It has no answer in the capture.", "e received the rebirth request",
        ),
        (
            [HOST, BORN, SEEN, ASKED, f"lost {DELIVERED}; > reset"],
            "It has no answer in the capture.", "h published the rebirth request",
        ),
    ],
)  # fmt: skip
def test_a_request_that_is_refused_or_not_delivered(lines: list[str], outcome: str, last: str) -> None:
    (rebirth,) = (row for row in answers(*lines) if row.question == "rebirth")

    assert rebirth.headline.endswith(f" {outcome}")
    assert rebirth.reasons[-1].text.startswith(last)
    assert not any("answered" in row.text for row in rebirth.reasons)


def test_one_request_is_one_answer() -> None:
    # Two subscriptions of the edge node, and other clients that receive the request as well.
    other = "@3 opened client=x; @3 > subscribe 1 spBv1.0/g/NCMD/e:1; @3 < suback 1 1; "
    copies = f"@3 < publish {REBIRTH}; {DELIVERED}; {DELIVERED}; @1 < publish {REBIRTH}"

    for lines in ([other + HOST, BORN, SEEN, f"{ASKED}; {copies}"], [other + HOST, BORN, f"{copies}"]):
        (rebirth,) = (row for row in answers(*lines) if row.question == "rebirth")
        assert [row.text for row in rebirth.reasons if "received the rebirth" in row.text] == [
            "e received the rebirth request"
        ]


def test_a_request_after_a_refused_one() -> None:
    assert [row.partition("requested a rebirth")[2] for row in sentences(HOST_5, BORN, SEEN, *[REFUSED] * 3)] == [
        "; nothing in the capture shows why. It was refused.",
        " again; its request before was refused. 2 of 2 requests were refused.",
    ]


@each(
    "lines, last",
    [
        ([HOST, SEEN, ASKED, f"{LATE}; {DELIVERED}; +1 > publish {BIRTH}"], "answered 1.0"),
        ([f"{LATE}; {DELIVERED}; +1 > publish {BIRTH}"], "answered 1.0"),
        ([HOST, SEEN, ASKED, f"midstream; version 3.1.1; +1 > publish {BIRTH}"], "answered 1.0"),
        # Only the host was captured: an NBIRTH with another bdSeq is of another connection.
        ([HOST, SEEN, f"{ASKED}; +1 {SEEN}"], "answered 1.0"),
        ([HOST, SEEN, f"{ASKED}; +1 {SEEN_1}"], "no answer, because it is due on a new connection: h received"),
        ([HOST, SEEN, f"{ASKED}; +1 {SEEN} retain"], "perhaps answered 1.0"),
        ([HOST, f"{ASKED}; +1 {SEEN}"], "perhaps answered 1.0"),
        # The capture shows that the edge node had not received the request.
        ([HOST, BORN, SEEN, ASKED, f"> publish {BIRTH}; {DELIVERED}"], "e received the rebirth request"),
    ],
)
def test_the_answer_in_a_capture_that_begins_late_or_has_one_side(lines: list[str], last: str) -> None:
    (rebirth,) = answers(*lines)

    assert rebirth.reasons[-1].text.startswith(last)


@each(
    "lines, expected",
    [
        # The NBIRTH of the next connection reaches the host before the will, or after it.
        ([HOST, SEEN, SEEN_1, f"@1 < publish {DEATH.format(0)}"], ""),
        (
            [HOST, BORN, SEEN, f"> reset; {AGAIN_1}", f"@1 < publish {DEATH.format(0)}", SEEN_1],
            RESET.format(1) + ", and the broker published its will; hosts have to show it as offline until they"
            " receive the NBIRTH of connection #2.",
        ),
        # The connection ends after the edge node has come back on another one.
        ([HOST, BORN, AGAIN_1, "> reset"], ""),
        (
            [HOST, "@1 < publish spBv1.0/g/NDEATH/e spb(T=1)"],
            (
                "Its NDEATH was delivered, and the capture does not show the connection that it belongs to; hosts have"
                " to show it as offline if its bdSeq is the one of the NBIRTH, which it lacks."
            ),
        ),
    ],
)  # fmt: skip
def test_a_return_before_the_death(lines: list[str], expected: str) -> None:
    assert [answer.headline for answer in answers(*lines)] == ([expected] if expected else [])


def test_a_gap_is_traced_to_the_edge_node() -> None:
    gap = f"@1 < publish {DATA.format(2)}; {ASKED}"
    left_out, *_ = answers(HOST, BORN, SEEN, f"> publish {DATA.format(2)}", gap)
    assert [row.text for row in left_out.reasons[:2]] == [
        "e published NDATA: its sequence number is 2, and 1 is due after 0",
        "h received NDATA: its sequence number is 2, and 1 is due after 0",
    ]


def test_a_request_and_its_answer() -> None:
    (answer,) = answers(
        HOST, BORN, f"{ASKED}; < publish {REBIRTH}; > publish {DATA.format(1)}; +1 > publish {BIRTH}",
        f"@1 < publish {REBIRTH}",
    )  # fmt: skip
    assert [row.text for row in answer.reasons] == [
        "h published the rebirth request", "e received the rebirth request",
        f"answered {answer.reasons[2].text.split()[1]} s after the request: e published NBIRTH with bdSeq 0",
        "the edge node published 1 message with data before that",
    ]  # fmt: skip
    assert answer.connections == (0, 1)


def test_a_host_that_was_not_captured_and_repeated_requests() -> None:
    assert sentences(BORN, f"> publish {DATA.format(5)}; < publish {REBIRTH}") == [
        (
            "rebirth, likely: A host requested a rebirth after sequence numbers that do not follow each other."
            " It has no answer in the capture."
        )
    ]
    asked = ASKED.replace("@1 ", "")
    assert sentences(f"midstream; version 3.1.1; < publish {DATA.format(5)}; < publish {DATA.format(6)}; {asked}") == [
        (
            "rebirth, None: 10.0.0.4:51234 requested a rebirth; nothing in the capture shows why."
            " It has no answer in the capture."
        )
    ]
    first = "rebirth, None: h requested a rebirth; nothing in the capture shows why. It has no answer in the capture."
    again, count = "rebirth, likely: h requested a rebirth again; ", "2 of 2 requests have no answer in the capture."
    assert sentences(HOST, BORN, SEEN, *[ASKED, f"< publish {REBIRTH}"] * 3) == [
        first, f"{again}its request before had no answer. {count}",
    ]  # fmt: skip
    assert sentences(HOST, BORN, SEEN, *[ASKED] * 3) == [
        first, f"{again}the capture does not show that the edge node received the request before. {count}",
    ]  # fmt: skip


def test_a_metric_without_a_birth() -> None:
    unborn = [*answers(BORN, "> publish spBv1.0/g/NDATA/e spb(seq=1 X=1); > publish spBv1.0/g/NDATA/e spb(seq=2 X=1)")]
    assert [(answer.question, answer.certainty, answer.headline) for answer in unborn] == [
        ("no_birth", Certainty.CERTAIN, "The metric 'X' is in data, and not in the NBIRTH before it.")
    ]
    seen = answers(
        HOST, SEEN, "@1 < publish spBv1.0/g/DBIRTH/e/d spb(seq=1); @1 < publish spBv1.0/g/DDATA/e/d spb(#4=1)"
    )
    assert [(answer.certainty, answer.headline) for answer in seen] == [
        (Certainty.LIKELY, "The metric alias 4 of device d is in data, and not in the DBIRTH before it.")
    ]


@pytest.mark.parametrize(
    "line", ["@1 opened client=h; > publish a/b x; > reset", f"{BORN}; > publish {DATA.format(1)}"]
)
def test_nothing_is_reported_without_a_question(line: str) -> None:
    watch = watched(line)
    assert (watch.answers(), list(watch.remarks())) == ([], [])


def unborn_metrics(count: int) -> NodeWatch:
    """The watch after data with metrics that no birth has."""
    metrics = " ".join(f"X{number}=1" for number in range(count))
    return watched(BORN, f"> publish spBv1.0/g/NDATA/e spb(seq=1 {metrics})")


def test_answers_beyond_the_limit_are_counted() -> None:
    watch = unborn_metrics(MAX_ANSWERS + 1)

    assert len(watch.answers()) == MAX_ANSWERS
    assert list(watch.remarks()) == ["limit: 20 answers of one kind about an edge node; 1 more were left out."]
