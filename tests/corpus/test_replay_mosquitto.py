"""The project's captures, replayed against a real mosquitto: nothing differs, nobody is broken, all is recorded.

At `asap` those that mosquitto recorded, and of the others those that show most; at the other paces fewer.  All of them
at every pace with MQTTSCOPE_EXHAUSTIVE=1 in the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.mqtt import Malformed
from tests.cli.running import capture, inspected, invoke
from tests.corpus import brokers
from tests.each import some
from tests.replay.recordings import EXHAUSTIVE, MISBEHAVING, NAMES, captured

pytestmark = [pytest.mark.broker, pytest.mark.tshark]

NO_CONNECT = "the capture begins in the middle of every connection"
UNREADABLE = "TLS without its keys"
NOT_PLAYED = {
    "joined-in-payload": NO_CONNECT,
    "joined-v311": NO_CONNECT,
    "joined-v5": NO_CONNECT,
    "server-side-only": NO_CONNECT,
    "strange-port-joined": NO_CONNECT,
    "tls-12": UNREADABLE,
    "tls-13": UNREADABLE,
    "tls-unknown-ca": UNREADABLE,
}
ONE_BEHIND_THE_OTHER = "derived: whole connections one after the other, so that messages come before they are sent"
INVENTED = "synthesised: another broker, with other limits, speaks"
DIFFERENT: dict[str, tuple[str, set[str]]] = {
    "coalesced": (ONE_BEHIND_THE_OTHER, {"missing-delivery"}),
    "reordered": (ONE_BEHIND_THE_OTHER, {"missing-delivery", "reason-code"}),
    "split-at-odd-places": (ONE_BEHIND_THE_OTHER, {"missing-delivery"}),
    "v5-closed-without-reason": ("recorded: the broker was stopped in the end", {"close"}),
    "broker-restarts": ("recorded: the broker was stopped and started again", {"close"}),
    "alias-both-directions": (INVENTED, {"property", "missing-delivery"}),
    "auth-exchange": (INVENTED, {"reason-code"}),
    "example-a-b-v5": (INVENTED, {"property", "reason-code"}),
    "example-alias-length-too-short": (INVENTED, {"property", "reason-code", "close"}),
    "example-alias-repaired": (INVENTED, {"property", "reason-code"}),
    "example-length-repaired": (INVENTED, {"property"}),
    "example-length-too-long": (INVENTED, {"property", "reason-code"}),
    "failing-device": (INVENTED, {"property", "reason-code"}),
    "five-byte-length": (INVENTED, {"property", "reason-code", "close"}),
    "planted-violations": (INVENTED, {"property", "close"}),
    "port-reused": (INVENTED, {"property"}),
    "server-moved": (INVENTED, {"property", "reason-code", "close"}),
    "session-taken-over": (INVENTED, {"property", "close"}),
    "websocket-deflate": (INVENTED, {"property", "missing-delivery"}),
    "device-restarts": (INVENTED, {"missing-delivery"}),
    "receive-maximum-exceeded": (INVENTED, {"property", "close"}),
    "refused-connects": (INVENTED, {"reason-code"}),
    "reset-by-middlebox": (INVENTED, {"close"}),
    "subscription-denied": (INVENTED, {"property", "reason-code", "close"}),
}
"""Captures that no mosquitto answers as they were recorded: why, and in which ways."""
CHANCE = {"failing-device": {"close"}, "too-large-v311": {"missing-answer"}}
"""What may differ besides: whether the client or the broker, which has reason to complain, leaves first, and whether it
answers before it does."""

SLEEPS = {"link-lost-keep-alive"}
"""Their clients are silent past the Keep Alive, and so is whoever plays them: the linter blames it."""
PLAYED = [name for name in NAMES if name not in {*NOT_PLAYED, *SLEEPS, *MISBEHAVING}]
TELLING = {
    "client-side-only", "coalesced", "failing-device", "joined-after-alias", "planted-violations", "raw-v31",
    "session-taken-over", "snaplen-96", "websocket-deflate",
}  # fmt: skip
"""What others than mosquitto made of captures, or wrote by hand, and is no repetition of another."""
REPEATED = {
    "port-18830", "v311-qos-downgrade", "v5-many-filters", "v5-message-expiry", "v5-subscription-identifiers",
    "websocket-v311",
}  # fmt: skip
"""Recorded, and much like another one for whoever replays it."""
SOON = [name for name in PLAYED if name in TELLING or (brokers.origin(name) == "recorded" and name not in REPEATED)]
CAUSAL = [
    "v31-qos", "v311-retained", "v311-session-present", "v5-flow-control", "v5-publish-properties",
    "v5-request-response", "v5-shared-subscription", "many-in-one-segment",
]  # fmt: skip
RECORDED = ["v311-redelivery", "v5-flow-control", "v5-limits", "many-in-one-segment"]


Records = dict[Path, tuple[str, int, int]]


@pytest.fixture(scope="module")
def records() -> Iterator[Records]:
    """Files that tshark reads when all are written."""
    result: Records = {}
    yield result
    brokers.check_with_tshark(result)


def check(name: str, pace: str, folder: Path, records: Records) -> None:
    with brokers.recorded_with(name) as url:
        replayed = brokers.replay(name, url, folder, "--pace", pace)
    port = int(url.rpartition(":")[2])
    _, kinds = DIFFERENT.get(name, ("", set()))

    assert set(replayed.kinds) - CHANCE.get(name, set()) == kinds, replayed.told
    assert replayed.done.code == replayed.expected_code, replayed.done.err
    assert replayed.failures == []
    assert brokers.client_errors(replayed.findings) <= brokers.recorded_errors(name)
    # After what cannot be read nobody knows where the next packet begins.
    if not any(isinstance(entry.packet, Malformed) for script in captured(name) for entry in script.entries):
        count = brokers.check_record(replayed, port)
        if not url.startswith("ws"):
            records[replayed.file] = f"{name} {pace}", port, count
    else:
        inspected("--port", str(port), replayed.file)


@pytest.mark.parametrize("name", PLAYED if EXHAUSTIVE else some(SOON, 6))
def test_as_soon_as_possible(name: str, tmp_path: Path, records: Records) -> None:
    check(name, "asap", tmp_path, records)


@pytest.mark.parametrize("name", PLAYED if EXHAUSTIVE else CAUSAL)
def test_in_causal_order(name: str, tmp_path: Path, records: Records) -> None:
    check(name, "causal", tmp_path, records)


@pytest.mark.parametrize("name", PLAYED if EXHAUSTIVE else RECORDED)
def test_at_the_recorded_pace(name: str, tmp_path: Path, records: Records) -> None:
    check(name, "recorded", tmp_path, records)


@pytest.mark.parametrize("name", NOT_PLAYED)
def test_what_has_no_connect_is_not_played(name: str) -> None:
    done = invoke("replay", capture(name), "--broker", "mqtt://127.0.0.1:1")

    assert done.code == EXIT_UNREADABLE
    assert "no connection can be replayed" in done.err


def test_the_tables_are_complete() -> None:
    assert {name for name in NAMES if any(script.begins for script in captured(name))} == set(
        PLAYED
    ) | SLEEPS | MISBEHAVING
    assert set(DIFFERENT) <= set(PLAYED)
    assert {*TELLING, *REPEATED, *CAUSAL, *RECORDED} <= set(PLAYED)
