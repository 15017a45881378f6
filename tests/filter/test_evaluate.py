"""Names of other tools: what they are suggested to be written as is right."""

from __future__ import annotations

import pytest

from mqttscope import filter as filters
from mqttscope.filter import FilterError
from mqttscope.filter.evaluate import FOREIGN, instead_of
from mqttscope.filter.fields import lookup
from tests.each import each


@each("name", FOREIGN)
def test_every_suggestion_is_an_expression_or_a_field(name: str) -> None:
    assert lookup(name) is None, "it is a field, so that nobody needs a suggestion"
    for written in FOREIGN[name]:
        if lookup(written) is None:
            for part in written.split(" and "):
                if lookup(part) is None:
                    filters.compile(part)


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("clientid == 'x'", "did you mean 'client_identifier'?"),
        ("clientID == 'x'", "did you mean 'client_identifier'?"),
        ("client_id == 'x'", "did you mean 'client_identifier'?"),
        ("mqtt.clientid == 'x'", "did you mean 'client_identifier'?"),
        ("ip.addr == 10.0.0.4", "did you mean 'client.address' or 'server.address'?"),
        ("ip.src == 10.0.0.4", "did you mean 'client.address' or 'server.address'?"),
        ("tcp.stream == 3", "did you mean 'connection'?"),
        ("frame.number == 3", "did you mean 'frame'?"),
        ("tcp.port == 1883", "did you mean 'client.port' or 'server.port'?"),
        ("mqtt.kalive == 3", "did you mean 'keep_alive'?"),
        ("mqtt.topic == 'x'", "did you mean 'topic'?"),
    ],
)
def test_the_hint_comes_with_the_error(expression: str, hint: str) -> None:
    with pytest.raises(FilterError) as caught:
        filters.compile(expression)

    assert caught.value.hint == hint


def test_names_that_nobody_has() -> None:
    assert instead_of("zzz") == ()


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("client_identifier == pump-0042", "pump-0042"),
        ("client_identifier == a1-b2-c3 and qos > 0", "a1-b2-c3"),
        ("qos > 0 and topic contains pump-7", "pump-7"),
        ("topic == plant/line1", "plant/line1"),
    ],
)
def test_text_without_quotes_comes_back_with_them(expression: str, text: str) -> None:
    with pytest.raises(FilterError) as caught:
        filters.compile(expression)
    error = caught.value

    assert error.hint == f'text needs quotes: "{text}"'
    assert expression[error.position : error.position + error.length] in text


@pytest.mark.parametrize(
    "written", ["PUBLISH", "Publish", "not CONNECT", "PUBACK or SubAck", "MALFORMED", "exists PINGREQ"]
)
def test_capital_letters_mean_nothing_in_names_of_packets(written: str) -> None:
    filters.compile(written)


def test_names_of_packets_mean_the_same_in_capital_letters() -> None:
    from mqttscope.capture import open_capture
    from mqttscope.dissect import dissect
    from tests.cli.running import capture

    events = list(dissect(open_capture([capture("v5-qos")])))
    single_each, other = filters.compile("publish"), filters.compile("PUBLISH")

    result = [single_each.matches(event) for event in events]
    assert any(result)
    assert result == [other.matches(event) for event in events]
