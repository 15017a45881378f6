"""Causes that TCP shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import segments
from mqttscope.explain import Cause, Certainty
from mqttscope.lint.examples import client, closes, on, opened, server
from mqttscope.mqtt.packets import Pingreq, Pingresp, Publish
from mqttscope.net.frame import Frame
from mqttscope.net.segment import Segment
from tests.explain.running import capture, explain, explained, of_segments, only


def test_the_lost_link_stands_after_the_keep_alive_that_ran_out() -> None:
    one = explain(capture("link-lost-keep-alive"))[0]

    assert [each.cause for each in one.candidates] == [Cause.KEEP_ALIVE, Cause.HALF_OPEN]
    assert one.first.headline.endswith("the client was out of reach.")
    assert any("were sent again" in told.text for told in one.first.reasons)


def test_a_half_open_connection_names_the_return_and_the_late_reset() -> None:
    one = explain(capture("half-open"))[0]
    told = [each.text for each in one.first.reasons]

    assert any("7 times again" in text for text in told)
    assert "the broker answered at last with RST: it did not know the connection any more" in told
    assert any("came back from another port as #1" in text for text in told)


@pytest.mark.parametrize("damaged", [[], [15], [15, 17]])
def test_what_was_damaged_while_nothing_was_acknowledged_is_evidence(damaged: list[int]) -> None:
    frames = [frame for frame in open_capture([str(capture("half-open"))]) if isinstance(frame, Frame)]
    for frame in frames:
        if frame.number in damaged:
            frame.data = frame.data[:-1] + bytes((frame.data[-1] ^ 1,))
    reasons = [each.text for each in of_segments(cast(Iterator[Segment], segments(frames)))[0].first.reasons]

    assert f"the client sent segments {7 - len(damaged)} times again" in " ".join(reasons)
    words = {1: "1 segment of", 2: "2 segments of"}
    expected = [f"{words[len(damaged)]} the client came damaged: the checksum is wrong"] if damaged else []
    assert [text for text in reasons if "damaged" in text] == expected


def test_a_device_that_starts_again_is_told_in_both_its_forms() -> None:
    first, second = explain(capture("device-restarts"))

    assert "same port" in first.first.headline
    assert "answered the broker's segment with a RST" in second.first.headline
    assert second.first.doubts


def test_a_reset_from_between_is_told_by_its_ttl_and_never_certain() -> None:
    one = explain(capture("reset-by-middlebox"))[0]

    assert one.first.certainty is Certainty.LIKELY
    assert one.first.reasons[0].text == "the RST has TTL 63; all other segments of the broker have 52"
    assert any("IP identification" in each.text for each in one.first.reasons)


def test_a_reset_like_the_other_segments_is_the_clients_own() -> None:
    found = {one.connection: one for one in explain(capture("v311-will"))}

    assert found[2].cause is Cause.CLIENT_RESET
    assert Cause.MIDDLEBOX_RESET not in [each.cause for each in found[2].candidates]


def test_plain_ends() -> None:
    found = {
        (by, how): only(*opened(), client(Publish(topic_name="a")), closes(by, how, after=3)).cause
        for by in ("client", "server")
        for how in ("fin", "reset")
    }

    assert found == {
        ("client", "fin"): Cause.CLIENT_CLOSED,
        ("client", "reset"): Cause.CLIENT_RESET,
        ("server", "fin"): Cause.SERVER_CLOSED,
        ("server", "reset"): Cause.SERVER_RESET,
    }


def test_tls_that_is_not_decrypted_cannot_be_explained() -> None:
    assert {one.cause for one in explain(capture("tls-13"))} == {Cause.UNREADABLE}


def test_an_open_connection_with_a_client_that_is_silent_for_too_long_is_told() -> None:
    found = explained(
        *opened(client_identifier="quiet", keep_alive=10),
        *on(1, *opened(client_identifier="busy"), client(Pingreq(), after=40), server(Pingresp())),
    )

    assert (found[0].cause, found[0].first.certainty) == (Cause.HALF_OPEN, Certainty.HYPOTHESIS)
    assert found[1].cause is Cause.STILL_OPEN
