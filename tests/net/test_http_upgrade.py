from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net.http_upgrade import (
    MAX_HEADER_BYTES,
    Handshake,
    Problem,
    Upgrade,
    accept_for,
    looks_like_upgrade,
    parse_request,
    parse_response,
)
from tests.net.framing import HTTP_REASONS
from tests.net.heads import KEY, request, response


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"Upgrade": None}, "upgrade_header_missing", id="no upgrade header"),
        pytest.param({"Upgrade": "h2c"}, "upgrade_header_missing", id="upgrade to something else"),
        pytest.param({"Connection": "keep-alive"}, "connection_header_missing", id="connection without upgrade"),
        pytest.param({"Sec-WebSocket-Version": "8"}, "websocket_version_wrong", id="draft version"),
        pytest.param({"Sec-WebSocket-Version": None}, "websocket_version_wrong", id="no version"),
        pytest.param({"Sec-WebSocket-Key": "c2hvcnQ=", "Sec-WebSocket-Accept": ""}, "key_invalid", id="short key"),
        pytest.param({"Sec-WebSocket-Key": ""}, "key_invalid", id="empty key"),
        pytest.param({"Sec-WebSocket-Key": None}, "key_missing", id="no key"),
        pytest.param({"Sec-WebSocket-Protocol": None}, "subprotocol_not_offered", id="no subprotocol"),
        pytest.param({"Sec-WebSocket-Protocol": "MQTT"}, "subprotocol_foreign", id="subprotocol in capitals"),
        pytest.param({"Sec-WebSocket-Protocol": "chat, amqp"}, "subprotocol_foreign", id="other subprotocols"),
        pytest.param({"Sec-WebSocket-Protocol": "mqttv3.1"}, "subprotocol_old", id="subprotocol of 3.1"),
        pytest.param({"first": "POST /mqtt HTTP/1.1"}, "request_not_get", id="another method"),
        pytest.param({"first": "GET /mqtt HTTP/1.0"}, "http_version_old", id="an old version"),
    ],
)
def test_a_bad_request_header_is_a_remark(changes: dict[str, str | None], expected: str) -> None:
    fields = dict(changes)
    first = fields.pop("first", "GET /mqtt HTTP/1.1") or ""
    parsed = parse_request(request(fields, first))
    assert parsed is not None
    assert [reason for reason, _ in parsed.remarks] == [expected]


@pytest.mark.parametrize(
    ("extension", "takeover", "problems"),
    [
        ("permessage-deflate", (True, True), []),
        ("permessage-deflate; client_no_context_takeover", (False, True), []),
        ("permessage-deflate; server_no_context_takeover; client_max_window_bits=9", (True, False), []),
        ('Permessage-Deflate ;server_max_window_bits="10"', (True, True), []),
        ("permessage-deflate; server_max_window_bits", (True, True), ["deflate_parameters_invalid"]),
        ("permessage-deflate; server_max_window_bits=16", (True, True), ["deflate_parameters_invalid"]),
        ("permessage-deflate; surprise=1", (True, True), ["deflate_parameters_invalid"]),
        ("permessage-deflate, permessage-deflate", (True, True), ["deflate_parameters_invalid"]),
    ],
)
def test_permessage_deflate_parameters_are_read(
    extension: str, takeover: tuple[bool, bool], problems: list[str]
) -> None:
    parsed = parse_response(response({"Sec-WebSocket-Extensions": extension}))
    assert parsed is not None
    assert parsed.deflate
    assert (parsed.client_takeover, parsed.server_takeover) == takeover
    assert [reason for reason, _ in parsed.remarks] == problems


def test_header_names_are_case_insensitive_lists_may_be_split_and_folds_are_harmless() -> None:
    text = (
        "GET /a HTTP/1.1\r\nhOST:h\r\nUPGRADE: foo, WebSocket\r\nconnection: keep-alive,\r\n\tUpgrade\r\n"
        f"sec-websocket-protocol: chat\r\nSec-WebSocket-Protocol: mqttv3.1 , mqtt\r\nsec-websocket-key:  {KEY} \r\n"
        "Sec-Websocket-Version: 13\r\nno colon here\r\n\r\n"
    )
    parsed = parse_request(text.encode())
    assert parsed is not None
    assert (parsed.path, parsed.host, parsed.key) == ("/a", "h", KEY)
    assert parsed.subprotocols == ["chat", "mqttv3.1", "mqtt"]
    assert parsed.remarks == []


def exchange(*steps: tuple[bool, bytes]) -> list[Upgrade | Problem]:
    handshake = Handshake()
    out: list[Upgrade | Problem] = []
    for from_client, data in steps:
        handshake.feed(from_client, data, out.append)
    return out


def reasons(events: list[Upgrade | Problem]) -> list[tuple[str, bool, bool]]:
    return [(event.reason, event.from_client, event.fatal) for event in events if isinstance(event, Problem)]


def test_the_key_of_rfc_6455_section_1_3_asks_for_its_accept_value() -> None:
    assert accept_for(KEY) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_a_good_exchange_is_one_upgrade_without_problems() -> None:
    assert exchange((True, request()), (False, response())) == [
        Upgrade("/mqtt", "broker.example", ["mqtt"], "mqtt", True, 101, [], [])
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"Sec-WebSocket-Accept": None}, ["accept_missing"], id="no accept"),
        pytest.param({"Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo"}, ["accept_wrong"], id="wrong accept"),
        pytest.param({"Sec-WebSocket-Protocol": None}, ["subprotocol_missing"], id="no subprotocol"),
        pytest.param({"Sec-WebSocket-Protocol": "chat"}, ["subprotocol_wrong"], id="foreign subprotocol"),
        pytest.param({"Sec-WebSocket-Protocol": "mqttv3.1"}, ["subprotocol_wrong"], id="subprotocol not offered"),
        pytest.param({"Upgrade": None}, ["upgrade_header_missing"], id="no upgrade header"),
        pytest.param({"Connection": "close"}, ["connection_header_missing"], id="connection without upgrade"),
        pytest.param(
            {"Sec-WebSocket-Extensions": "permessage-deflate"}, ["extension_not_offered"], id="deflate not offered"
        ),
        pytest.param(
            {"Sec-WebSocket-Extensions": "x-bzip; level=9"},
            ["extension_unknown", "extension_not_offered"],
            id="unknown extension",
        ),
    ],
)
def test_a_bad_response_header_is_a_problem_of_the_server(changes: dict[str, str | None], expected: list[str]) -> None:
    upgrade, *problems = exchange((True, request()), (False, response(changes)))
    assert isinstance(upgrade, Upgrade)
    assert upgrade.accepted
    assert upgrade.problems == expected
    assert reasons(problems) == [(reason, False, False) for reason in expected]


def test_informational_responses_are_stepped_over() -> None:
    steps = [
        (False, b"HTTP/1.1 100 Continue\r\n\r\n"),
        (False, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + response()),
    ]
    assert exchange((True, request()), *steps) == exchange((True, request()), (False, response()))


def test_a_refused_request_may_be_repeated_on_the_same_connection() -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\ndenied"
    out = exchange((True, request()), (False, refusal[:-3]), (True, request()), (False, refusal[-3:] + response()))
    assert [(event.status, event.accepted) for event in out if isinstance(event, Upgrade)] == [
        (401, False),
        (101, True),
    ]
    assert reasons(out) == [("not_upgraded", False, False)]


def test_a_body_without_length_ends_what_can_be_read_of_the_server() -> None:
    out = exchange((True, request()), (False, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"))
    assert reasons(out) == [("not_upgraded", False, False), ("body_length_unknown", False, True)]


def test_a_switch_to_another_protocol_is_fatal() -> None:
    out = exchange((True, request()), (False, response({"Upgrade": "h2c"})))
    assert isinstance(out[0], Upgrade)
    assert not out[0].accepted
    assert reasons(out) == [("not_upgraded", False, True)]


def test_a_response_without_request_says_so() -> None:
    out = exchange((False, response()))
    assert out[0] == Upgrade("", "", [], "mqtt", True, 101, [], ["request_not_seen"])


def test_each_problem_tells_where_its_head_begins() -> None:
    first = request({"Sec-WebSocket-Version": "7"})
    refusal = b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n"
    second = request({"Sec-WebSocket-Version": "8"})
    out = exchange((True, first), (False, refusal), (True, second), (False, response({"Connection": "x"})))
    assert [(problem.reason, problem.offset) for problem in out if isinstance(problem, Problem)] == [
        ("websocket_version_wrong", 0),
        ("not_upgraded", 0),
        ("websocket_version_wrong", len(first)),
        ("connection_header_missing", len(refusal)),
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"GE", None, id="start of the method"),
        pytest.param(b"GET /mqtt HTTP/1.1", None, id="no end of line"),
        pytest.param(b"GET /mqtt HTTP/1.1\r\nHost: a\r\n", None, id="headers incomplete"),
        pytest.param(b"GET /mqtt HTTP/1.1\r\nUpgrade: websocket", None, id="upgrade line incomplete"),
        pytest.param(b"GET /mqtt HTTP/1.1\r\nUpgrade: websocket\r\n", True, id="decided before the head ends"),
        pytest.param(request(), True, id="complete head"),
        pytest.param(request() + b"\x82\x85", True, id="frame after the head"),
        pytest.param(b"GET / HTTP/1.1\nupgrade:h2c, WebSocket\n\n", True, id="bare line feeds, list, capitals"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", False, id="plain request"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\nUpgrade: websocket\r\n", False, id="upgrade after the head"),
        pytest.param(b"GET / HTTP/1.1\r\nX-Upgrade: websocket\r\n\r\n", False, id="name only ends like it"),
        pytest.param(b"GET / HTTP/1.1\r\nUpgrade: nowebsocket\r\n\r\n", False, id="token only ends like it"),
        pytest.param(b"GET / HTTP/1.0\r\nUpgrade: websocket\r\n\r\n", False, id="http 1.0"),
        pytest.param(b"GET  nonsense\r\n", False, id="bad request line"),
        pytest.param(b"POST / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", False, id="post"),
        pytest.param(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", False, id="mqtt connect"),
        pytest.param(b"GET /" + b"a" * MAX_HEADER_BYTES, False, id="endless request line"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20000, False, id="endless head"),
    ],
)
def test_an_upgrade_request_is_recognised(data: bytes, expected: bool | None) -> None:
    assert looks_like_upgrade(data) is expected


def test_recognition_asks_for_more_until_it_is_sure() -> None:
    whole = request()
    answers = [looks_like_upgrade(whole[:size]) for size in range(len(whole) + 1)]
    sure = answers.index(True)
    assert answers == [None] * sure + [True] * (len(whole) + 1 - sure)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(st.integers(0, 600), max_size=8))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_chunking_of_the_exchange_says_the_same(cuts: list[int]) -> None:
    ask = request({"Sec-WebSocket-Protocol": "chat"})
    answer = b"HTTP/1.1 100 Continue\r\n\r\n" + response({"Sec-WebSocket-Accept": "x"})
    steps = [(True, piece) for piece in pieces(ask, cuts)] + [(False, piece) for piece in pieces(answer, cuts)]
    assert exchange(*steps) == exchange((True, ask), (False, answer))


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=80)), max_size=6), st.data())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_arbitrary_and_mutated_bytes_never_raise_and_give_known_reasons(
    noise: list[tuple[bool, bytes]], data: st.DataObject
) -> None:
    heads = [bytearray(request()), bytearray(response({"Sec-WebSocket-Extensions": "permessage-deflate"}))]
    for mutated in heads:
        for at in data.draw(st.lists(st.integers(0, len(mutated) - 1), max_size=3)):
            mutated[at] = data.draw(st.integers(0, 255))
    steps = [(True, bytes(heads[0])), (False, bytes(heads[1])), *noise]
    out = exchange(*data.draw(st.permutations(steps)))
    assert {reason for reason, _, _ in reasons(out)} <= HTTP_REASONS
    assert looks_like_upgrade(bytes(heads[0])) in (True, False, None)
