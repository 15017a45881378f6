"""Texts and bytes under a key: the same length and form, never two that become one."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt.topics import matches
from mqttscope.redact.pseudonyms import MAX_JSON, MAX_PERMUTED, Pseudonyms
from tests.each import each

NAMES = Pseudonyms(b"key")
OTHER = Pseudonyms(b"another key")


def is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def form(text: str) -> str:
    """What of a text stays: its punctuation, and the classes of its letters."""
    classes = {"Lu": "A", "Ll": "a", "Nd": "0"}
    return "".join(
        classes.get(unicodedata.category(other_text), "?") if other_text.isalnum() else other_text
        for other_text in text
    )


@each(
    "count, make",
    [
        (10, lambda number: b"%d" % number),
        (676, lambda number: bytes((97 + number // 26, 97 + number % 26))),
        (1_000, lambda number: b"sensor-%d" % number),
        (500, lambda number: ("ü" + chr(0x4E00 + number)).encode()),
        (1_000, lambda number: b"x" * MAX_PERMUTED + b"%03d" % number),
    ],
    ids=["a digit", "two letters", "numbered names", "beyond ASCII", "longer than what is permuted"],
)
def test_no_two_names_become_one(count: int, make: Callable[[int], bytes]) -> None:
    names = [make(number) for number in range(count)]

    chunks = [NAMES.name(raw) for raw in names]

    assert len(set(chunks)) == count
    assert list(map(len, chunks)) == list(map(len, names))


@each("text", ["pump-7/Kessel", "A1", "  x_y  ", "a+b#c$", "0b0e7c1a-3f5d-4c7e-9a5b-1f2e3d4c5b6a", "deadbeef01"])
def test_ascii_keeps_its_form(text: str) -> None:
    new_text = NAMES.name(text.encode()).decode()

    assert form(new_text) == form(text)
    if "deadbeef01" in text or text.count("-") == 4:
        assert all(text in "0123456789abcdef-" for text in new_text)


def test_upper_and_lower_case_correspond() -> None:
    assert NAMES.name(b"Boiler").lower() == NAMES.name(b"boiler")
    assert NAMES.name(b" boiler") == b" " + NAMES.name(b"boiler")


def test_another_key_gives_other_names_and_the_same_key_the_same() -> None:
    assert NAMES.name(b"thermostat") == Pseudonyms(b"key").name(b"thermostat") != OTHER.name(b"thermostat")
    assert NAMES.secret(b"hunter2hunter2", b"p") != OTHER.secret(b"hunter2hunter2", b"p")


def test_what_makes_rules_fire_stays() -> None:
    odd = ("a\0b\x07\ufeffc\ufdd0\U0001fffed").encode()
    new_text = NAMES.text(odd, b"name").decode()

    assert [text for text in new_text if not text.isalnum()] == ["\0", "\x07", "\ufeff", "\ufdd0", "\U0001fffe"]


def test_faults_of_utf_8_stay_where_they_are() -> None:
    for raw in (b"ab\xc0\x80cd", b"\xed\xa0\x80x", b"caf\xe9", b"\xf0\x90\x80"):
        new_raw = NAMES.text(raw, b"name")
        wrong, other = raw.decode("utf-8", "surrogateescape"), new_raw.decode("utf-8", "surrogateescape")
        assert [at for at, text in enumerate(other) if "\udc80" <= text <= "\udcff"] == [
            at for at, text in enumerate(wrong) if "\udc80" <= text <= "\udcff"
        ]
        assert len(new_raw) == len(raw)


def test_long_runs_of_bytes_that_are_no_text_are_replaced() -> None:
    raw = bytes(range(0x80, 0xC0))
    new_raw = NAMES.text(raw, b"name")

    assert new_raw[:4] == raw[:4]
    assert all(number in (0xC0, 0xC1) or number >= 0xF8 for number in new_raw[4:])


@given(st.binary(max_size=80))
@settings(max_examples=60)
def test_payloads_keep_their_length_and_whether_they_are_text(raw: bytes) -> None:
    new_raw = NAMES.payload(raw)

    assert len(new_raw) == len(raw)
    assert is_text(new_raw) is is_text(raw)
    assert NAMES.payload(raw) == new_raw


def test_short_payloads_stay_different() -> None:
    for size in (1, 2):
        raws = [number.to_bytes(size, "big") for number in range(0x80, 0x100)]
        assert len({NAMES.payload(raw) for raw in raws}) == len(raws)
    assert len({NAMES.payload(b"%d" % number) for number in range(1_000)}) == 1_000


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def shape(value: object) -> object:
    if isinstance(value, dict):
        return [shape(each) for each in value.values()]
    if isinstance(value, list):
        return [shape(each) for each in value]
    return value if value is None or isinstance(value, bool) else type(value).__name__


@given(JSON, st.booleans())
@settings(max_examples=50)
def test_json_stays_json_of_the_same_structure(value: object, escaped: bool) -> None:
    raw = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    if not is_text(raw):
        return
    new_raw = NAMES.payload(raw)

    assert len(new_raw) == len(raw)
    if not isinstance(value, dict):
        # Keys of an object may become one, as in any text: then the later one counts.
        assert shape(json.loads(new_raw)) == shape(value) or isinstance(value, list)
    json.loads(new_raw)


def test_escaped_and_plain_characters_are_replaced_alike() -> None:
    raw = r'["\u0064\u0065\u0076","dev","d\u0065v","\u00fc\n\u0007","ü\n\u0007",{"k":1,"\u006b":1}]'.encode()
    new_raw = NAMES.payload(raw)
    first, second, third, umlaut, plain, keys = json.loads(new_raw)

    assert first == second == third != "dev"
    assert first.isalpha()
    assert first.isascii()
    assert umlaut == plain != "ü\n\a"
    assert len(keys) == 1
    assert len(new_raw) == len(raw)


def test_characters_beyond_16_bits_are_replaced_in_escapes() -> None:
    faces = [chr(0x1F600 + number) for number in range(64)]
    pairs = [NAMES.payload(json.dumps(face).encode()) for face in faces]
    shown = [json.loads(raw) for raw in pairs]

    assert len(set(shown)) == len(faces)
    assert {len(face) for face in shown} == {1}
    assert len(set(shown) & set(faces)) < len(faces) // 8
    # Half a pair is no character; what it means is unknown, and it stays.
    assert NAMES.payload(b'"\\ud83d"') == b'"\\ud83d"'


def test_long_texts_are_replaced_in_a_moment_and_everywhere() -> None:
    raw = b"the quick brown fox 123; " * 40_000
    new_raw = NAMES.payload(raw)

    assert len(raw) > MAX_JSON
    assert len(new_raw) == len(raw)
    assert b"quick" not in new_raw
    assert new_raw[::25] != raw[::25]
    assert {new_raw[at] for at in range(3, 2_500, 25)} == {0x20}


@given(st.lists(st.sampled_from("abc xY12"), min_size=1, max_size=3), st.integers(0, 3))
@settings(max_examples=50)
def test_filters_match_the_same_topics(levels: list[str], depth: int) -> None:
    topic = "/".join(levels)
    for wanted in (topic, "#", "/".join(levels[:depth]) + "/#", "+/" * (len(levels) - 1) + "+", topic + "/x"):
        by_level = [
            "/".join(NAMES.name(word.encode()).decode() for word in text.split("/")) for text in (wanted, topic)
        ]
        assert matches(*by_level) is matches(wanted, topic)


def test_a_secret_keeps_nothing_but_its_length() -> None:
    raw = NAMES.secret(b"a-b c:d!", b"password")

    assert len(raw) == 8
    assert raw.isalnum()
    assert not is_text(NAMES.secret(b"\xff\x00\xfe\x01\x02", b"password"))
