"""Messages that clients get several times."""

from __future__ import annotations

from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

READER = "opened client=reader; > subscribe 1 t:0; < suback 1 0"
BRIDGES = "@1 opened client=br-a; @2 opened client=br-b"
SHARE = "$share/g/t"
MEMBERS = f"opened client=a; > subscribe 1 {SHARE}:1; < suback 1 1; @1 opened client=b; @1 > subscribe 1 {SHARE}:1"
MEMBERS += "; @1 < suback 1 1; @2 opened client=writer"


def remarks(*lines: str) -> str:
    return "\n".join(traced("t", *steps_of(*lines)).remarks)


def rounds(*payloads: str, pause: str = "") -> list[str]:
    """Messages that two clients publish, and that a reader gets twice."""
    return [
        f"@1 > publish t {payload}; {pause}@2 > publish t {payload}; < publish t {payload}; < publish t {payload}"
        for payload in payloads
    ]


def test_several_clients_publish_each_payload() -> None:
    text = remarks(READER, BRIDGES, *rounds("x1", "x2", "x3"))

    assert "br-a and br-b publish each payload to t within 10.0 ms, 3 of 3 times (the first: frames " in text
    assert "so that reader gets each value 2 times: the broker passes each message on once. Let one of them" in text


@each(
    "lines",
    [
        rounds("x1", "x2"),  # it may be by chance
        rounds("on", "on", "on", "off"),  # the payloads are not of one source
        rounds("x1", "x2", "x3", pause="+0.101 "),
        [*rounds("x1", "x2", "x3"), "@1 > publish t y; @2 > publish t z"],
        [f"{line}; {line}".replace("@2", "@1") for line in rounds("x1", "x2", "x3")],  # one client
    ],
)
def test_publishers_that_are_not_of_one_source(lines: list[str]) -> None:
    assert "publish each payload" not in remarks(READER, BRIDGES, *lines)


def to_members(*payloads: str, first: str = "", second: str = "", pause: str = "") -> list[str]:
    """Messages that two members of a share get."""
    return [
        f"@2 > publish t {text}; < publish t {text} qos=1 id={number}{first}; {pause}@1 < publish t {text} qos=1"
        f" id={number}{second}"
        for number, text in enumerate(payloads, 1)
    ]


@each("version, rule", [("", "(5.0 4.8.2)"), (" 3.1.1", "(5.0 4.8.2; in 3.1.1 shares are an extension of the broker)")])
def test_a_share_that_is_not_distributed(version: str, rule: str) -> None:
    shown = traced("t", *steps_of(MEMBERS.replace("opened", f"opened{version}"), *to_members("x1", "x2")))
    text = "\n".join(shown.remarks)

    assert f"a and b are members of one share ({SHARE}), and 2 of 2 messages went to several of them" in text
    assert f"where one copy is due {rule}: the broker does not distribute the share. The first: frame " in text
    outcomes = [delivery.outcome for delivery in shown.messages[0].deliveries]
    assert outcomes[0].endswith(f"; b, another member of the share ({SHARE}), got it too, where one copy is due")


@each(
    "lines",
    [
        to_members("x1"),  # once, another client that was not captured may have published it too
        to_members("x1", "x2", pause="+1.1 "),
        to_members("x1", "x2", pause="> fin; "),  # the first member went away without an answer
        [line.partition("; +0 @1")[0] for line in to_members("x1", "x2", pause="+0 ")],
        [*to_members("x1", "x2"), *(line.partition("; @1")[0] for line in to_members("x3", "x4", "x5"))],
    ],
)
def test_copies_that_do_not_show_how_a_share_is_distributed(lines: list[str]) -> None:
    if "> fin" in lines[0]:
        lines = lines[:1]
    assert "does not distribute" not in remarks(MEMBERS, *lines)


def test_a_publisher_sends_the_message_again() -> None:
    lines = [
        f"@2 > publish t x{n} qos=1 id={n}; < publish t x{n}; @2 > publish t x{n} qos=1 id={n} dup; @1 < publish t x{n}"
        for n in (1, 2)
    ]

    assert "does not distribute" not in remarks(MEMBERS, *lines)
