"""The screen: its rows, its width, and commands that shells read."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest

from mqttscope.explain.model import UnresolvedName
from mqttscope.lint.catalogue import select
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.triage.collect import EXTENDED, BrokerSummary, FaultKind, Triage
from mqttscope.triage.screen import MAX_COMMANDS, MAX_FAULTS, MIN_COMMANDS, Screen, command_lines, commands, quote
from tests import tools
from tests.conftest import ROOT
from tests.each import each
from tests.triage.running import END, LOOP, TOKEN, gathered, of_capture, refused

CAPTURES = sorted(path.parent.name for path in (ROOT / "captures").glob("*/capture.pcapng"))


def shown(
    triage: Triage,
    width: int = 80,
    *,
    captures: tuple[str, ...] = ("a.pcapng",),
    colour: bool = False,
    unicode: bool = True,
    **more: object,
) -> list[str]:
    """The lines of a screen."""
    screen = Screen(triage, View(width=width, colour=colour, unicode=unicode), captures)
    for name, value in more.items():
        setattr(screen, name, value)
    return screen.rendered().decode().splitlines()


def part(lines: list[str], title: str) -> list[str]:
    """The lines below a title, up to an empty line, a title or a label."""
    begin = next(number for number, line in enumerate(lines) if line.startswith(title)) + 1
    rows = []
    for line in lines[begin:]:
        if not line.startswith("  "):
            break
        rows.append(line)
    return rows


CODES = (0x84, 0x95, 0x86, 0x87, 0x88, 0x8A, 0x97, 0x9C)


@pytest.mark.parametrize("count", [1, 2, 3, MAX_FAULTS])
def test_what_broke_has_at_most_seven_rows_and_lines(count: int) -> None:
    triage = gathered(*(refused(number, f"c{number}", CODES[number]) for number in range(count)))
    assert len(triage.faults) == count

    rows = part(shown(triage), "What broke")
    assert len(rows) <= MAX_FAULTS
    assert sum(row.startswith("  frame ") for row in rows) == count


@pytest.mark.parametrize("width", [40, 59, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for name in CAPTURES[::4]:
        capture = f"captures/{name}/capture.pcapng"
        lines = shown(of_capture(name), width, captures=(capture,))
        assert [line for line in lines if cells(line) > width] == [], name
        # The path is longer than a narrow terminal.
        assert len(lines) <= (40 if width < 60 else 24), name


def test_without_unicode_all_is_ascii() -> None:
    triage = gathered(f"opened client={'ü' * 80}; > publish ö/+; > fin")

    assert "\n".join(shown(triage, 60, unicode=False)).isascii()


def test_colour_only_where_it_is_wanted() -> None:
    triage = of_capture("keep-alive")

    plain = "\n".join(shown(triage))
    coloured = "\n".join(shown(triage, colour=True))
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_hostile_names_are_escaped() -> None:
    name = "\x1b]0;x\x07\u202e\nWhat broke: nothing"
    triage = gathered(rf'opened client={json.dumps(name)}; > publish "a/+\u001b[2J"; > fin')
    text = "\n".join(shown(triage, captures=("\x1b[31m.pcapng",)))

    assert not {char for char in text if not char.isprintable()} - {"\n"}
    assert "\n".join(shown(triage)).count("\nWhat broke") == 1


def test_nothing_broke_is_said_of_what_was_judged() -> None:
    text = "\n".join(shown(gathered("opened", END)))
    assert "Nothing broke in what was captured\n" in text
    assert f"No error or warning by {len(select(extended=EXTENDED))} rules, and no lost message is known." in text
    assert "1 connection ended with DISCONNECT" in text

    assert "Nothing broke" not in "\n".join(shown(gathered()))
    assert "Nothing broke" not in "\n".join(shown(of_capture("tls-12")))


def test_nothing_was_judged_says_why() -> None:
    lines, named = shown(gathered()), shown(gathered(), no_mqtt="no TCP connection found")
    assert part(lines, "Nothing was judged") == ["  No MQTT packet could be read."]
    assert part(named, "Nothing was judged") == ["  No TCP connection found."]


@each("breaks", [True, False])
def test_clients_that_could_not_resolve_a_name_are_shown_also_beside_faults(breaks: bool) -> None:
    triage = gathered(*([refused(1, "c1")] if breaks else ["opened; > disconnect; > fin"]))
    row = UnresolvedName("192.0.2.9", 1, "likely: 192.0.2.9 could not resolve b.example", "Look.")
    triage.explainer.totals.unresolved.append(row)
    triage.explainer.totals.remarks.append(row.sentence)

    assert sum("could not resolve b.example" in line for line in shown(triage)) == 1


def test_connections_without_a_client_identifier_are_counted_by_host() -> None:
    triage = gathered(*(f"@{number} silent > raw 160301; @{number} < fin" for number in (1, 2)))

    assert {fault.who for fault in triage.faults if fault.kind is FaultKind.END} == {"10.0.0.4"}


def test_what_the_capture_lacks_is_no_fault_of_those_who_speak() -> None:
    lines = shown(of_capture("snaplen-96"))

    assert len(part(lines, "What broke")) == 1
    assert part(lines, "Nothing else broke")
    assert any(line.startswith("Limits   2 connections with lost bytes") for line in lines)


FOUR = [refused(number, f"c{number}", CODES[number]) for number in range(4)]
ROWS: list[tuple[str, Callable[[], Triage], int, str]] = [
    ("certainty stands first", lambda: of_capture("keep-alive"), 40, r"  f(rame )?30  ?asleep, likely: "),
    ("and with more room", lambda: of_capture("keep-alive"), 80, r"  frame 30  asleep, likely: "),
    (
        "certain rows have no word for it",
        lambda: of_capture("failing-device"),
        80,
        "  frame 16  thermostat-7: FLW201 client has 3 QoS 1 and 2 messages",
    ),
    (
        "warnings are told as such",
        lambda: gathered(r'opened; > publish "a\u0001" x', END),
        80,
        "  frame 6  c1, warning: ENC103 ",
    ),
    (
        "a short title comes first where the sentence is cut",
        lambda: gathered(*FOUR),
        80,
        r"(?s).*\n  frame 22  c2: bad credentials: The broker refused the CONNECT[^\n]*…\n",
    ),
    (
        "rows of several captures name theirs",
        lambda: of_capture("keep-alive", "v5-qos"),
        80,
        r"  frame 30 of .{1,24}  asleep, likely: ",
    ),
]


@each("about, make, width, expected", ROWS)
def test_rows(about: str, make: Callable[[], Triage], width: int, expected: str) -> None:
    assert re.match(expected, "\n".join(part(shown(make(), width), "What broke"))), about


def test_the_contents_of_a_capture() -> None:
    lines = shown(of_capture("websocket-v311", "websocket-v5"))

    assert re.match(r"Captures 2: ….{20,23}, ….{20,23}, 70 frames, ", lines[0])
    rows = {line[:9].strip(): line[9:] for line in lines if line[:1] != " "}
    assert rows["Time"].startswith("2026-")
    assert rows["Broker"].endswith(" over WebSocket")
    assert rows["Client"] == "page, 2 connections"
    assert " of MQTT 5.0 and 3.1.1: " in rows["Packets"] or " of MQTT 3.1.1 and 5.0: " in rows["Packets"]


@pytest.mark.parametrize(
    ("encrypted", "decryptable", "advice"),
    [
        (1, 0, ""),
        (1, 1, "; --keylog FILE decrypts it"),
        (2, 0, ""),
        (2, 1, "; --keylog FILE decrypts 1 of them"),
        (2, 2, "; --keylog FILE decrypts them"),
    ],
)
def test_a_key_log_is_offered_for_what_it_decrypts(encrypted: int, decryptable: int, advice: str) -> None:
    triage = gathered("opened", END)
    triage.brokers["192.0.2.2:8883"] = BrokerSummary(encrypted, encrypted=encrypted, decryptable=decryptable)
    row = re.search(r"(?m)^TLS +(.+(?:\n {9}.+)*)", "\n".join(shown(triage)))

    assert row is not None
    text = " ".join(row[1].split())
    assert text.endswith(f"encrypted and not read{advice}")


def test_other_tls_connections_and_the_option_that_lists_them() -> None:
    lines = shown(gathered(), other_tls=Counter({"10.0.0.9:443": 2, "10.0.0.8:993": 1}))
    begin = next(number for number, line in enumerate(lines) if line.startswith("TLS"))

    assert lines[begin : begin + 2] == [
        "TLS      3 other TLS connections, 2 to 10.0.0.9:443 (--port 443:tls takes them",
        "         for MQTT)",
    ]
    assert "  mqttscope inspect a.pcapng --port 443:tls" in lines
    text = "\n".join(shown(gathered(), other_tls=Counter({"10.0.0.9:443": 1})))
    reported_text = "TLS      1 other TLS connection to 10.0.0.9:443 (--port 443:tls takes it for MQTT)"
    assert reported_text in text.replace("\n         ", " ")
    assert "TLS      1 connection is encrypted and not read; --keylog FILE decrypts it" in shown(of_capture("tls-12"))


def test_errors_and_remarks() -> None:
    errors = [(f"{name}.pcapng", f"is cut in {name}") for name in "abcd"]
    lines = shown(gathered("opened", END), errors=errors, remarks=["12 frames of UDP", "4 segments twice"])

    assert [line for line in lines if line.startswith("Error")] == [f"Error    is cut in {name}" for name in "abc"]
    assert "         and 1 more" in lines
    assert "Not read 12 frames of UDP; 4 segments twice" in lines


def test_a_broker_that_says_what_it_is() -> None:
    version = '< publish $SYS/broker/version "mosquitto version 2.0.11" retain'
    lines = shown(gathered("opened", version, END))

    assert any(line.endswith(" (reports mosquitto version 2.0.11)") for line in lines)


@pytest.mark.parametrize("name", CAPTURES[::6])
def test_two_to_four_commands_each_once(name: str) -> None:
    lines = commands(of_capture(name), ("a.pcapng",), (), Counter())

    assert MIN_COMMANDS <= len(lines) <= MAX_COMMANDS
    assert len({*map(tuple, lines)}) == len(lines)


def test_commands_follow_from_what_broke() -> None:
    keep_alive = commands(of_capture("keep-alive"), ("a.pcapng",), ("--port", "1884:mqtt"), Counter())
    assert [" ".join(words) for words in keep_alive] == [
        "mqttscope explain a.pcapng --port 1884:mqtt --client asleep",
        "mqttscope inspect a.pcapng --port 1884:mqtt --connection 1 --filter frame in 10..30",
        "mqttscope stats a.pcapng --port 1884:mqtt",
    ]
    denied = commands(of_capture("v5-reason-codes"), ("a.pcapng",), (), Counter())
    assert ["mqttscope", "explain", "a.pcapng", "--message", "closed/a"] in denied
    assert ["mqttscope", "lint", "a.pcapng"] in denied
    circulating = commands(gathered(*LOOP), ("a.pcapng",), (), Counter())
    assert ["mqttscope", "lint", "a.pcapng", "--extend-select", "OPS230"] in circulating


@pytest.mark.parametrize("name", ["a*", "x\x07", "-x", "a b", "o'k", "", "x" * 81])
def test_a_client_is_named_where_its_name_can_be_typed(name: str) -> None:
    triage = gathered(refused(0, name))
    (words,) = [line for line in commands(triage, ("a.pcapng",), (), Counter()) if line[1] == "explain"]

    is_named = name in ("a b", "o'k")
    assert words[3:] == (["--client", name] if is_named else ["--connection", "0"] if triage.faults[0].client else [])


def test_topics_with_secrets_are_not_typed() -> None:
    triage = of_capture("v5-reason-codes")
    for fault in triage.faults:
        if fault.kind is FaultKind.LOSS:
            fault.topic = TOKEN

    assert not any(TOKEN in line for line in commands(triage, ("a.pcapng",), (), Counter()))


def test_few_commands_where_their_names_are_long() -> None:
    names = tuple(f"captures/{'x' * 60}{number}.pcapng" for number in range(3))
    triage = of_capture("v5-reason-codes")
    text = "\n".join(shown(triage, captures=names))
    assert text.count("mqttscope ") == MIN_COMMANDS

    assert "\n".join(shown(triage)).count("mqttscope ") > MIN_COMMANDS


def test_standard_input_is_to_be_given_again() -> None:
    assert "What to type next, with the same input" in shown(of_capture("keep-alive"), captures=("-",))
    assert "What to type next" in shown(of_capture("keep-alive"))


WORDS = [
    "plain", "with blank", "it's", '"quoted"', "$HOME `id`", "a\\b", "ü/ö", "-", "", "x" * 200, "y z" * 60,
    "'" * 50, "#", "!x", "tab\there", "esc\x1b[0m", "\udcff.pcap", "new\nline", "~", "a;b|c&d",
]  # fmt: skip


@pytest.mark.parametrize("width", [0, 20, 40, 80])
def test_a_shell_reads_the_words_that_were_meant(width: int) -> None:
    tools.program("bash")
    for word in WORDS:
        script = "\n".join(command_lines(["printf", "%s\\0", word, "end"], width))
        done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
        assert done.stdout == word.encode("utf-8", "surrogateescape") + b"\0end\0", (word, script)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_command_lines_fit(width: int) -> None:
    for word in WORDS:
        lines = command_lines(["mqttscope", "explain", word, "--client", word], width)
        assert [line for line in lines if cells(line) > width] == []


def test_a_command_that_fits_is_one_line() -> None:
    words = ["mqttscope", "lint", "a.pcapng"]
    assert command_lines(words, 26) == ["  mqttscope lint a.pcapng"]
    assert command_lines(words, 25) == ["  mqttscope lint a.pcapng"]
    assert command_lines(words, 24) == ["  mqttscope lint \\", "    a.pcapng"]
    assert command_lines([*words, "x" * 500], 0) == [f"  mqttscope lint a.pcapng {'x' * 500}"]


def test_quoted_words() -> None:
    words = {"a.pcapng": "a.pcapng", "a b": "'a b'", "\x1b'": "$'\\x1b\\''", "\udcff": "$'\\xff'"}
    assert {word: quote(word) for word in words} == words
