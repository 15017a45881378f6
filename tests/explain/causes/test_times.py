"""Times of evidence: what came after the end, the end of the capture, clocks that are set back."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.lint.examples import (
    ExampleStep,
    client,
    closes,
    conversation,
    crossing,
    on,
    opened,
    segments,
    server,
)
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Publish
from mqttscope.net.segment import FIN, RST, Segment
from tests.each import each
from tests.explain.running import explained, of_segments, only
from tests.lint.lint_help import steps_of

V311 = ProtocolVersion.V3_1_1
SECOND = 1_000_000_000


def made(*steps: ExampleStep) -> list[Segment]:
    return list(segments(conversation("", *steps)))


def sentences(explanation: Explanation) -> list[str]:
    return [reason.text for each in explanation.candidates for reason in (*each.reasons, *each.doubts)]


def crossed(*after: ExampleStep) -> Explanation:
    """The client sends after the FIN of the server, and before its own."""
    actual_segments = made(*opened(V311), client(Pingreq()), server(Pingresp()), *after, closes("server"))
    first = next(at for at, segment in enumerate(actual_segments) if segment.flags & FIN)
    sent = [at for at, segment in enumerate(actual_segments) if segment.payload][-len(after) :]
    order = [segment for at, segment in enumerate(actual_segments) if at not in sent and at < first]
    # The server had not received it when it closed.
    late = [
        replace(actual_segments[first], acknowledgment=actual_segments[sent[0]].sequence),
        *(actual_segments[at] for at in sent),
    ]
    late += actual_segments[first + 1 :]
    base = actual_segments[sent[0]].timestamp_ns
    order += [
        replace(
            segment,
            frame=actual_segments[sent[0]].frame + at,
            timestamp_ns=base + at * 1000,
            acknowledgment=segment.acknowledgment,
        )
        for at, segment in enumerate(late)
    ]
    return of_segments(order)[0]


def test_a_packet_after_the_end_is_no_evidence() -> None:
    explanation = crossed(client(Publish(topic_name="late", qos=1, packet_identifier=1)))

    assert [each.cause for each in explanation.candidates] == [Cause.SERVER_CLOSED]
    assert any(text.endswith("before the end: PINGREQ") for text in sentences(explanation))
    assert not any("-" in text.partition("before the end")[0] for text in sentences(explanation))
    assert any("late" in each.what for each in explanation.timeline)


def test_a_goodbye_after_the_end_did_not_end_the_connection() -> None:
    assert crossed(client(Disconnect())).cause is Cause.SERVER_CLOSED


def test_the_end_of_the_capture_is_its_last_frame() -> None:
    explanations = explained(
        *opened(client_identifier="quiet", keep_alive=10),
        *on(1, *opened(client_identifier="busy"), client(Pingreq(), after=40), server(Pingresp())),
    )
    last = explanations[1].timeline[-1]

    for explanation in explanations:
        (ended,) = [reason for reason in explanation.first.reasons if reason.text.startswith("the capture ends")]
        assert ended.frame is not None
        assert ended.timestamp_ns is not None
        assert ended.frame >= last.frame
        assert ended.timestamp_ns >= last.timestamp_ns
    assert explanations[0].cause is Cause.HALF_OPEN


def test_a_silence_just_below_the_limit_is_told_as_such() -> None:
    explanation = only(*opened(V311, keep_alive=10), closes("server", after=14.5))

    assert (explanation.cause, explanation.first.certainty) == (Cause.KEEP_ALIVE, Certainty.HYPOTHESIS)
    assert (
        "is just below the 15 s allowed; the broker's clock or timer may count differently"
        in explanation.first.headline
    )
    assert "ran out" not in explanation.first.headline


def test_a_clock_that_is_set_back_leaves_the_order_of_the_capture() -> None:
    actual_segments = made(
        *opened(V311, keep_alive=60), client(Pingreq()), server(Pingresp()), closes("server", after=1)
    )
    at = next(at for at, segment in enumerate(actual_segments) if segment.payload[:1] == b"\xc0")
    back = [
        *actual_segments[:at],
        *(replace(segment, timestamp_ns=segment.timestamp_ns - 3600 * SECOND) for segment in actual_segments[at:]),
    ]
    explanation = of_segments(back)[0]

    assert explanation.clock_set
    assert explanation.notes[-1].startswith(
        f"In the capture the clock was set back by 3,600 s at frame {actual_segments[at].frame}"
    )
    assert [each.frame for each in explanation.timeline] == sorted(each.frame for each in explanation.timeline)
    assert explanation.timeline[0].what.startswith("CONNECT")
    assert not any("-" in text.partition("before the end")[0] for text in sentences(explanation))


@each("is_in_silence", [False, True])
def test_a_step_of_the_clock_in_the_silence_before_ends(is_in_silence: bool) -> None:
    """An idle time-out may have ended connections together, and nothing shows how long they were silent."""
    actual_segments = made(*steps_of("for 0..2: @{n} opened 3.1.1 client=c{n}; @{n} > pingreq; @{n} < pingresp",
                           "+9 @0 < fin", "for 1..2: @{n} < fin"))  # fmt: skip
    at = next(at for at, segment in enumerate(actual_segments) if segment.flags & FIN) if is_in_silence else 5
    back = [
        *actual_segments[:at],
        *(replace(segment, timestamp_ns=segment.timestamp_ns - 3600 * SECOND) for segment in actual_segments[at:]),
    ]

    assert {end.cause for end in of_segments(back)} == {Cause.SERVER_CLOSED if is_in_silence else Cause.SERVER_RESTART}


def test_frames_that_are_a_little_out_of_order_set_no_clock_back() -> None:
    assert not only(*opened(V311), client(Pingreq()), crossing(server(Pingresp())), closes("server")).clock_set


def test_a_client_that_answers_the_end_with_a_reset_may_have_lost_the_path() -> None:
    actual_segments = made(
        *opened(V311, keep_alive=5), client(Pingreq()), server(Pingresp()),
        server(Publish(topic_name="cmd/x"), after=21), closes("server", after=0.001),
    )  # fmt: skip
    end = next(at for at, segment in enumerate(actual_segments) if segment.flags & FIN)
    pushed = next(at for at, segment in enumerate(actual_segments) if b"cmd/x" in segment.payload)
    left_segments = [
        *actual_segments[: pushed + 1],
        replace(actual_segments[end], frame=actual_segments[pushed].frame + 1),
    ]
    answer = next(segment for segment in actual_segments if segment.key != actual_segments[end].key)
    reset = replace(
        answer, frame=left_segments[-1].frame + 1, timestamp_ns=left_segments[-1].timestamp_ns + 30_000, flags=RST,
        sequence=left_segments[-1].acknowledgment, acknowledgment=0, payload=b"",
    )  # fmt: skip
    explanation = of_segments([*left_segments, reset])[0]

    assert [each.cause for each in explanation.candidates] == [Cause.KEEP_ALIVE, Cause.HALF_OPEN]
    assert any("answered with RST alone" in text for text in sentences(explanation))
    assert not any("did not even acknowledge" in text for each in explanation.candidates for text in each.advice)
