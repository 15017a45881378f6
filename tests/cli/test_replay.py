"""``replay`` without a broker: options, the plan, and what is refused before anything is sent."""

from __future__ import annotations

import pytest

from tests.cli.running import capture, invoke

QOS = capture("v5-qos")
HERE = ("--broker", "mqtt://127.0.0.1:1")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "Missing option '--broker'"),
        (("--broker", "http://h"), "--broker"),
        (("--broker", "mqtt://u:lovelace@h"), "a password does not belong in a URL"),
        ((*HERE, "--pace", "fast"), "'fast' is not one of recorded, asap, causal"),
        ((*HERE, "--map-port", "1883"), "is not RECORDED=LIVE"),
        ((*HERE, "--key", "k.pem"), "--key needs --cert"),
        ((*HERE, "--insecure"), "--insecure is for a broker with TLS"),
        ((*HERE, "--faithful", "--user", "ada"), "--faithful sends the recorded credentials"),
        ((*HERE, "--write", str(QOS)), "v5-qos"),
        ((*HERE, "--map-topic", "a"), "a"),
        (("--broker", "mqtts://127.0.0.1:1", "--ca", "/nowhere/ca.pem"), "cannot read /nowhere/ca.pem"),
    ],
)
def test_what_makes_no_sense_is_said(options: tuple[str, ...], expected: str) -> None:
    done = invoke("replay", QOS, *options)

    assert done.code == 2
    assert expected in done.err
    assert "lovelace" not in done.err
    assert done.text == ""


@pytest.mark.parametrize(
    ("options", "codes", "expected"),
    [
        (("--password-file", "/nowhere/none"), {3}, "cannot read the password from"),
        (("--client", "nobody"), {2, 3}, ""),
    ],
)
def test_what_cannot_be_played(options: tuple[str, ...], codes: set[int], expected: str) -> None:
    done = invoke("replay", QOS, *HERE, *options)

    assert done.code in codes
    assert expected in done.err
    assert "Traceback" not in done.err


def test_the_plan_sends_nothing() -> None:
    done = invoke("replay", QOS, *HERE, "--dry-run", "--pace", "2x")
    (document,) = invoke("replay", QOS, *HERE, "--dry-run", "--format", "jsonl", "--client", "sensor-*").lines

    assert (done.code, done.err) == (0, "")
    assert "would replay to mqtt://127.0.0.1:1" in done.text
    assert "pace 2x" in done.text
    assert [row["client_identifier"] for row in document["connections"]] == ["sensor-1"]


def test_another_host_needs_consent() -> None:
    done = invoke("replay", capture("v311-retained"), "--broker", "mqtt://192.0.2.1")

    assert done.code == 2
    assert "mqtt://192.0.2.1:1883 is another host: add --yes to allow sending to it" in done.err
    assert "removed from home/setpoint" in done.err


def test_all_that_3_1_1_cannot_say_is_named_and_lossy_leaves_it_out() -> None:
    words = ("replay", capture("v5-publish-properties"), "--broker", "mqtt://127.0.0.1:1", "--dry-run")
    refused = invoke(*words, "--convert", "3.1.1")
    done = invoke(*words, "--convert", "3.1.1", "--lossy", "--format", "jsonl")
    alone = invoke(*words, "--lossy")

    assert refused.code == alone.code == 2
    assert "fields cannot be converted to MQTT 3.1.1:" in refused.err
    assert "publish.properties.user_property" in refused.err
    assert "publish.properties.content_type" in refused.err
    assert "--lossy" in refused.err
    assert done.code == 0
    assert any("left out: publish.properties.user_property" in each for each in done.lines[0]["changes"])
    assert "--lossy needs --convert 3.1.1" in alone.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--set", "connect.password:s3cret"), "--set: connect.password: write PATH=VALUE"),
        (("--set", "s3cret"), "--set: write PATH=VALUE"),
        (("--set", "connect.s3cret=1"), "--set: connect.… is not a field that can be set"),
        (
            ("--set", "connect.password:s3cret=="),
            "--set: connect.… is not a field that can be set; did you mean connect",
        ),
        (("--set", "connack.s3cret=1"), "--set: connack: only packets of clients can be set"),
        (("--set", "connect.password=s3cret"), "--set: connect.password cannot be set: it is a secret"),
        (("--set", "publish.payload=hex:s3cret"), "--set: publish.payload: this value is not allowed, only pairs"),
        (("--set", "connect.properties.user_property=s3cret"), "this value is not allowed, only NAME=VALUE"),
        (("--unset", "s3cret"), "--unset: this is not a field that can be set"),
        (("--unset", "connect.password=s3cret"), "--unset: connect.… is not a field that can be set"),
    ],
)
def test_a_malformed_setting_is_told_without_its_value(words: tuple[str, ...], expected: str) -> None:
    done = invoke("replay", QOS, *HERE, *words)

    assert done.code == 2
    assert expected in done.err
    assert "s3cret" not in done.err


@pytest.mark.parametrize("path", ["p;token=s3cret", "p%3Ftoken%3Ds3cret", "p%253Fs3cret", "p?s3cret"])
def test_the_path_of_a_broker_is_told_without_its_tokens(path: str) -> None:
    done = invoke("replay", QOS, "--broker", f"ws://127.0.0.1:1/{path}")

    assert "ws://127.0.0.1:1/p" in done.text
    assert "s3cret" not in done.text + done.err
