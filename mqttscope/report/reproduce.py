"""What the client of one recorded connection sent, as a shell script, a JSON script for `replay`, or a test for pytest.

All three say in their first lines what they are, how they are run, and which secrets they hide.  What a capture holds
stands in them as octal or hexadecimal digits, and in comments as printable text, so that nothing of it is executed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from mqttscope.mqtt.codec import packet_end
from mqttscope.replay.script_file import FOREIGN, PASSWORD, ScriptFile, Step, write_script
from mqttscope.report.base import Clock

ANSWER_MS = 200
"""What the shell waits at least where the recorded client got an answer."""
LAST_MS = 500
"""What it waits for the last answer."""
PAUSE_MS = 50
"""Recorded pauses that are shorter are left out."""
MAX_PAUSE_S = 5
"""Pauses that are longer are shortened, unless the user says otherwise."""
PER_LINE = 48
"""Bytes on a line of the scripts."""
_ANSWERS = ("connack", "puback", "pubrec", "pubcomp", "suback", "unsuback", "pingresp", "auth", "disconnect")
"""What a broker sends because of what the client of the same connection sent."""
PASSWORD_VARIABLE = "MQTTSCOPE_PASSWORD"


def json_script(made: ScriptFile) -> bytes:
    """For ``mqttscope replay``."""
    return write_script(made)


def shell_script(made: ScriptFile) -> bytes:
    """For sh, with printf, sleep and nc, or with openssl where the broker speaks TLS."""
    given = next((step for step in made.steps if step.password is not None), None)
    out = [
        "#!/bin/sh",
        *_head(made, "sh"),
        "# Usage: sh FILE [HOST [PORT]]   (127.0.0.1 and 1883 where they are not given)",
        "#   TLS=1 speaks TLS; MAX_PAUSE=60 keeps pauses up to a minute, longer ones are shortened",
        "# Shows what the broker answers in hexadecimal. Packet identifiers are those of the recording.",
        "set -eu",
        "LC_ALL=C; export LC_ALL",
        f"HOST=${{1:-127.0.0.1}} PORT=${{2:-1883}} MAX_PAUSE=${{MAX_PAUSE:-{MAX_PAUSE_S}}}",
    ]
    if given is not None:
        out += [f': "${{{PASSWORD_VARIABLE}?the recorded password is hidden: give one in this variable}}"', *_LENGTHS]
    out += [*_PAUSE, "say() {"]
    for pause, step, answers in _client_steps(made):
        if answers:
            out.append(f"  # the broker: {answers}")
        if pause:
            out.append(f"  pause {pause}")
        if step.acknowledges == FOREIGN:
            out.append(f"  # left out: {step.says} of a message that another client published")
            continue
        out.append(f"  # {step.says}")
        out += _password_lines(step) if step.password is not None else _printed(step.data)
    out += [f"  pause {_last_pause(made)}", "}", *_CONNECT, "say | connection | od -An -v -tx1", ""]
    return "\n".join(out).encode("utf-8", "backslashreplace")


_LENGTHS = (
    'byte() { printf "\\\\$(printf %03o "$1")"; }',
    "two_bytes() { byte $(($1 / 256)); byte $(($1 % 256)); }",
    "remaining_length() {",
    "  left=$1",
    '  while [ "$left" -gt 127 ]; do byte $((left % 128 + 128)); left=$((left / 128)); done',
    '  byte "$left"',
    "}",
)
_PAUSE = (
    "pause() { # milliseconds",
    "  wait=$1",
    '  [ "$wait" -le $((MAX_PAUSE * 1000)) ] || wait=$((MAX_PAUSE * 1000))',
    '  sleep "$((wait / 1000)).$(printf %03d $((wait % 1000)))"',
    "}",
)
_CONNECT = (
    "connection() {",
    '  if [ -n "${TLS:-}" ]; then',
    '    openssl s_client -quiet -no_ign_eof -connect "$HOST:$PORT" 2>/dev/null',
    "  elif nc -h 2>&1 | grep -q -e ' -N'; then",
    '    nc -N -w $((MAX_PAUSE + 5)) "$HOST" "$PORT" # -N: the end of the input ends the connection',
    "  else",
    '    nc -w $((MAX_PAUSE + 5)) "$HOST" "$PORT"',
    "  fi",
    "}",
)


def _printed(data: bytes) -> Iterator[str]:
    """Lines that print bytes: every printf knows octal digits, and letters stay readable."""
    for start in range(0, len(data), PER_LINE):
        part = data[start : start + PER_LINE]
        # In front it would be the beginning of an option.
        first = "\\055" if part[:1] == b"-" else _octal(part[0])
        yield f"  printf '{first}{''.join(_octal(byte) for byte in part[1:])}'"


def _octal(byte: int) -> str:
    char = chr(byte)
    # What printf or the shell would read as something else is written as digits.
    return char if char.isascii() and char.isprintable() and char not in "%\\'" else f"\\{byte:03o}"


def _password_lines(step: Step) -> Iterator[str]:
    """A CONNECT whose password comes from the environment: its lengths follow from that."""
    assert step.password is not None
    start, _ = step.password
    body, _ = packet_end(step.data, 0, len(step.data))
    fixed = step.data[body : start - 2]
    yield from _printed(step.data[:1])
    yield f"  remaining_length $(({len(fixed) + 2} + ${{#{PASSWORD_VARIABLE}}}))"
    yield from _printed(fixed)
    yield f"  two_bytes ${{#{PASSWORD_VARIABLE}}}"
    yield f'  printf %s "${PASSWORD_VARIABLE}"'


def _client_steps(made: ScriptFile) -> Iterator[tuple[int, Step, str]]:
    """Each packet of the client, with the pause before it in milliseconds, and what the broker sent before it."""
    before: Step | None = None
    answers: list[str] = []
    for step in made.steps:
        if step.ends:
            continue
        if not step.from_client:
            answers.append(step.says)
            continue
        pause = 0
        if before is not None:
            recorded = (step.after_ns - before.after_ns) // 1_000_000
            pause = max(recorded if recorded >= PAUSE_MS else 0, ANSWER_MS if answers else 0)
        more = f" and {len(answers) - 3} more" if len(answers) > 3 else ""
        yield pause, step, ", ".join(answers[:3]) + more
        before, answers = step, []


def _last_pause(made: ScriptFile) -> int:
    """What is waited after the last packet of the client: as long as the connection lasted, in milliseconds."""
    last = max((step.after_ns for step in made.steps if step.from_client and not step.ends), default=0)
    return max(LAST_MS, (made.steps[-1].after_ns - last) // 1_000_000 + ANSWER_MS)


def _head(made: ScriptFile, form: str) -> Iterator[str]:
    """The comment at the beginning."""
    yield "# What the client of one recorded MQTT connection sent; written by mqttscope inspect."
    yield from _comment(f"{made.about}, opened {Clock().iso(made.opened_ns)}, broker {made.server}")
    if made.lost:
        yield f"# {made.lost:,} bytes that the client sent are not in the capture, and are not sent."
    for index, fields in made.hidden:
        if made.steps[index].from_client:
            yield from _comment(f"Hidden: {', '.join(fields)} of the {made.steps[index].says} (step {index}).")
    if any(PASSWORD in step.hidden for step in made.steps if step.password is not None):
        yield f"#   The password is taken from ${PASSWORD_VARIABLE}."
    if any(step.hidden and step.from_client for step in made.steps):
        yield "#   What is hidden is sent as asterisks otherwise; inspect --show-secrets writes the file with it."


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="#   ", break_long_words=True)


def pytest_file(made: ScriptFile) -> bytes:
    """For pytest, with the fixture ``mqtt_proxy``."""
    with_password = any(step.password is not None for step in made.steps)
    out = [*_head(made, "py"), _PYTHON_HEAD.replace("VERSION_TEXT", made.version.text), "STEPS = ["]
    steps = [step for step in made.steps if not step.ends]
    last_ns: int | None = None
    for index, step in enumerate(steps):
        if not step.from_client:
            continue
        if step.acknowledges == FOREIGN:
            out.append(f"    # left out: {step.says} of a message that another client published")
            continue
        pause = 0 if last_ns is None else (step.after_ns - last_ns) // 1_000_000
        last_ns = step.after_ns
        out += [f"    # {step.says}", "    Step("]
        out += [f'        "{row}"' for row in textwrap.wrap(step.data.hex(), 2 * PER_LINE)]
        out[-1] += ","
        if pause >= PAUSE_MS:
            out.append(f"        pause={pause / 1000:g},")
        answers = _answers_after(steps, index)
        if answers:
            out.append(f"        answers={answers!r},".replace("'", '"'))
        if step.acknowledges:
            kind = "pubrel" if step.kind == "pubcomp" else "publish"
            out.append(f'        acknowledges="{kind}",')
        if step.password is not None:
            out.append("        password=True,")
        out.append("    ),")
    out += ["]", f"LASTED_S = {_last_pause(made) / 1000:g}  # after the last packet of the client"]
    out.append(_PYTHON_TEST.replace("WITH_PASSWORD", _PYTHON_PASSWORD if with_password else ""))
    return "\n".join(out).encode("utf-8", "backslashreplace")


def _answers_after(steps: list[Step], index: int) -> list[str]:
    """What the broker answered before the next packet of the client."""
    found = []
    for step in steps[index + 1 :]:
        if step.from_client:
            break
        if step.kind in _ANSWERS:
            found.append(step.kind)
    return found


_PYTHON_HEAD = f"""\
# Usage: MQTTSCOPE_BROKER=mqtt://127.0.0.1:1883 pytest FILE   (or the setting mqtt_upstream of pytest)
# Plays the client through the proxy of mqttscope, waits for the recorded answers, and fails where the broker
# answers otherwise, or where either side breaks the specification.
import os
import socket
import time
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from mqttscope.mqtt import ProtocolVersion, decode, encode
from mqttscope.mqtt.stream import PacketStream

VERSION = ProtocolVersion.from_text("VERSION_TEXT")
MAX_PAUSE_S = {MAX_PAUSE_S}  # longer pauses are shortened
PATIENCE_S = 5  # for each answer


@dataclass
class Step:
    data: str  # what the client sends
    pause: float = 0  # seconds before it
    answers: list = field(default_factory=list)  # of the broker, before the next step
    acknowledges: str = ""  # what of the broker: its packet identifier is taken
    password: bool = False  # whether the password of the environment is put in

"""
_PYTHON_PASSWORD = f"""\
            if step.password:
                password = os.environ.get("{PASSWORD_VARIABLE}")
                if password is None:
                    pytest.fail("the recorded password is hidden: set {PASSWORD_VARIABLE}")
                connect = decode(data, VERSION)
                connect.password = os.fsencode(password)
                data = encode(connect, VERSION)
"""
_PYTHON_TEST = """

def test_reproduction(mqtt_proxy):
    proxy = mqtt_proxy(os.environ.get("MQTTSCOPE_BROKER"))
    came, wanted = Counter(), Counter()
    deliveries = {"publish": deque(), "pubrel": deque()}
    stream = PacketStream(version=VERSION)
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as client:

        def read(seconds, until):
            # Returns False once the broker has ended the connection.
            end = time.monotonic() + seconds
            while not until() and (left := end - time.monotonic()) > 0:
                client.settimeout(left)
                try:
                    data = client.recv(65_536)
                except TimeoutError:
                    break
                except ConnectionError:
                    return False
                if not data:
                    return False
                for item in stream.feed(data):
                    name = type(item).__name__.lower()
                    came[name] += 1
                    if name in deliveries and item.packet_identifier is not None:
                        deliveries[name].append(item.packet_identifier)
            return True

        for step in STEPS:
            read(min(step.pause, MAX_PAUSE_S), lambda: False)
            data = bytes.fromhex(step.data)
WITH_PASSWORD            if step.acknowledges:
                waiting = deliveries[step.acknowledges]
                read(PATIENCE_S, lambda: waiting)
                if not waiting:
                    pytest.fail(f"the broker sent no {step.acknowledges.upper()} to acknowledge")
                at = next(place for place in range(1, 5) if data[place] < 0x80) + 1
                data = data[:at] + waiting.popleft().to_bytes(2, "big") + data[at + 2 :]
            wanted.update(step.answers)
            try:
                client.sendall(data)
            except ConnectionError:
                break
            if not read(PATIENCE_S, lambda: all(came[name] >= count for name, count in wanted.items())):
                break
        read(min(LASTED_S, MAX_PAUSE_S), lambda: False)

    kinds = set(wanted) | set(came) - {"publish", "pubrel"}
    assert {name: came[name] for name in kinds} == {name: wanted[name] for name in kinds}
    proxy.assert_conformant()
"""
