"""The packets sent by one recorded client, as a shell script, a JSON script for `replay`, or a test for pytest.

The first lines of each file contain its purpose, its usage, and the secrets that it hides.  Captured data is written as
octal or hexadecimal digits, and as printable text in comments, so that it cannot be executed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from mqttscope.mqtt.codec import packet_end
from mqttscope.replay.script_file import FOREIGN, PASSWORD, ScriptFile, ScriptStep, write_script
from mqttscope.report.base import Clock

ANSWER_MS = 200
"""Minimum wait of the shell script if the recorded client got an answer."""
LAST_MS = 500
"""Wait of the shell script for the last answer."""
PAUSE_MS = 50
"""Minimum length of a recorded pause that is kept."""
MAX_PAUSE_S = 5
"""Default maximum pause; longer ones are shortened."""
PER_LINE = 48
"""Number of bytes per line of the scripts."""
_ANSWERS = ("connack", "puback", "pubrec", "pubcomp", "suback", "unsuback", "pingresp", "auth", "disconnect")
"""Packet types that a broker sends in answer to packets of the same client."""
PASSWORD_VARIABLE = "MQTTSCOPE_PASSWORD"


def json_script(script: ScriptFile) -> bytes:
    return write_script(script)


def shell_script(script: ScriptFile) -> bytes:
    """Script for sh, with printf, sleep and nc, or openssl if the broker uses TLS."""
    password_step = next((step for step in script.steps if step.password is not None), None)
    out = [
        "#!/bin/sh",
        *_head(script, "sh"),
        "# Usage: sh FILE [HOST [PORT]]   (default 127.0.0.1 and 1883)",
        "#   TLS=1 uses TLS; MAX_PAUSE=60 keeps pauses up to a minute and shortens longer ones",
        "# Shows the broker's answers in hexadecimal. Packet identifiers are as recorded.",
        "set -eu",
        "LC_ALL=C; export LC_ALL",
        f"HOST=${{1:-127.0.0.1}} PORT=${{2:-1883}} MAX_PAUSE=${{MAX_PAUSE:-{MAX_PAUSE_S}}}",
    ]
    if password_step is not None:
        out += [f': "${{{PASSWORD_VARIABLE}?the recorded password is hidden: set this variable}}"', *_LENGTHS]
    out += [*_PAUSE, "say() {"]
    for pause, step, answers in _client_steps(script):
        if answers:
            out.append(f"  # the broker: {answers}")
        if pause:
            out.append(f"  pause {pause}")
        if step.acknowledges == FOREIGN:
            out.append(f"  # left out: {step.says} of a message that another client published")
            continue
        out.append(f"  # {step.says}")
        out += _password_lines(step) if step.password is not None else _printed(step.data)
    out += [f"  pause {_last_pause(script)}", "}", *_CONNECT, "say | connection | od -An -v -tx1", ""]
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
    """Lines that print bytes: every printf supports octal digits, and letters stay readable."""
    for start in range(0, len(data), PER_LINE):
        part = data[start : start + PER_LINE]
        # A hyphen at the beginning would start an option.
        first = "\\055" if part[:1] == b"-" else _octal(part[0])
        yield f"  printf '{first}{''.join(_octal(byte) for byte in part[1:])}'"


def _octal(byte: int) -> str:
    char = chr(byte)
    # Characters with a meaning for printf or the shell are written as digits.
    return char if char.isascii() and char.isprintable() and char not in "%\\'" else f"\\{byte:03o}"


def _password_lines(step: ScriptStep) -> Iterator[str]:
    """Lines for a CONNECT with the password of the environment and lengths computed from it."""
    assert step.password is not None
    start, _ = step.password
    body, _ = packet_end(step.data, 0, len(step.data))
    fixed = step.data[body : start - 2]
    yield from _printed(step.data[:1])
    yield f"  remaining_length $(({len(fixed) + 2} + ${{#{PASSWORD_VARIABLE}}}))"
    yield from _printed(fixed)
    yield f"  two_bytes ${{#{PASSWORD_VARIABLE}}}"
    yield f'  printf %s "${PASSWORD_VARIABLE}"'


def _client_steps(script: ScriptFile) -> Iterator[tuple[int, ScriptStep, str]]:
    """Each packet of the client, with the pause before it in milliseconds, and the broker's packets before it."""
    before: ScriptStep | None = None
    answers: list[str] = []
    for step in script.steps:
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


def _last_pause(script: ScriptFile) -> int:
    """Pause after the last packet of the client in milliseconds: to the recorded end of the connection."""
    last = max((step.after_ns for step in script.steps if step.from_client and not step.ends), default=0)
    return max(LAST_MS, (script.steps[-1].after_ns - last) // 1_000_000 + ANSWER_MS)


def _head(script: ScriptFile, form: str) -> Iterator[str]:
    yield "# Packets sent by the client of one recorded MQTT connection; written by mqttscope inspect."
    yield from _comment(f"{script.about}, opened {Clock().iso(script.opened_ns)}, broker {script.server}")
    if script.lost:
        yield f"# {script.lost:,} bytes of the client are missing from the capture, and are not sent."
    for index, fields in script.hidden:
        if script.steps[index].from_client:
            yield from _comment(f"Hidden: {', '.join(fields)} of the {script.steps[index].says} (step {index}).")
    if any(PASSWORD in step.hidden for step in script.steps if step.password is not None):
        yield f"#   The password is taken from ${PASSWORD_VARIABLE}."
    if any(step.hidden and step.from_client for step in script.steps):
        yield "#   Other hidden values are sent as asterisks; inspect --show-secrets writes them."


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="#   ", break_long_words=True)


def pytest_file(script: ScriptFile) -> bytes:
    """A test for pytest, with the fixture ``mqtt_proxy``."""
    with_password = any(step.password is not None for step in script.steps)
    out = [*_head(script, "py"), _PYTHON_HEAD.replace("VERSION_TEXT", script.version.text), "STEPS = ["]
    steps = [step for step in script.steps if not step.ends]
    last_ns: int | None = None
    for index, step in enumerate(steps):
        if not step.from_client:
            continue
        if step.acknowledges == FOREIGN:
            out.append(f"    # left out: {step.says} of a message that another client published")
            continue
        pause = 0 if last_ns is None else (step.after_ns - last_ns) // 1_000_000
        last_ns = step.after_ns
        out += [f"    # {step.says}", "    ScriptStep("]
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
    out += ["]", f"LASTED_S = {_last_pause(script) / 1000:g}  # after the last packet of the client"]
    out.append(_PYTHON_TEST.replace("WITH_PASSWORD", _PYTHON_PASSWORD if with_password else ""))
    return "\n".join(out).encode("utf-8", "backslashreplace")


def _answers_after(steps: list[ScriptStep], index: int) -> list[str]:
    """Answers of the broker before the next packet of the client."""
    answers = []
    for step in steps[index + 1 :]:
        if step.from_client:
            break
        if step.kind in _ANSWERS:
            answers.append(step.kind)
    return answers


_PYTHON_HEAD = f"""\
# Usage: MQTTSCOPE_BROKER=mqtt://127.0.0.1:1883 pytest FILE   (or the setting mqtt_upstream of pytest)
# Plays the client through the proxy of mqttscope and waits for the recorded answers. Fails if the broker answers
# otherwise, or if either side breaks the specification.
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
class ScriptStep:
    data: str  # packet of the client
    pause: float = 0  # seconds before the packet
    answers: list = field(default_factory=list)  # of the broker, before the next step
    acknowledges: str = ""  # packet type of the broker's packet that gives the identifier
    password: bool = False  # whether to insert the password of the environment

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
