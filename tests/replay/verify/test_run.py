"""What is known of a recording: publications, Wills, subscriptions, and whether it is complete."""

from __future__ import annotations

from mqttscope.replay.verify.run import ReplayRun
from tests.replay.talk import pairs, record


def test_publications_know_whether_they_were_performed() -> None:
    run = ReplayRun(
        pairs(
            "dev > connect will=w will_payload=gone will_qos=1\ndev > publish a x\ndev > publish a y qos=1 id=1\n"
            "dev > publish a y qos=1 id=1 dup",
            "dev > connect will=w will_payload=gone will_qos=1\ndev > publish a x",
        )
    )
    actual_pairs = {
        key[:2]: [(row.qos, row.performed is not None) for row in rows] for key, rows in run.publications.items()
    }

    assert actual_pairs == {("w", b"gone"): [(1, True)], ("a", b"x"): [(0, True)], ("a", b"y"): [(1, False)]}


def test_subscriptions_are_of_the_client_on_all_its_connections() -> None:
    run = ReplayRun(pairs("dev > connect\ndev > subscribe 1 a/+:0 $share/g/a/b:1\ndev > fin\ndev > connect", ""))
    again = run.pairs[1].script

    assert [subscription.topic_filter for subscription in run.subscriptions(again, "a/b")] == ["a/+", "$share/g/a/b"]
    assert [subscription.shared for subscription in run.subscriptions(again, "a/b")] == [False, True]
    assert run.subscriptions(again, "a") == []


def test_recordings_that_lack_something_are_incomplete() -> None:
    def incomplete(text: str) -> bool:
        return ReplayRun((script, None) for script in record(text)).incomplete

    assert not incomplete("dev > connect\ndev < lost 3\nscan > fin")
    assert incomplete("dev > connect\ndev > lost 3")
    assert incomplete("dev > pingreq")


def test_topics_that_are_ignored() -> None:
    assert ReplayRun([]).ignores("$SYS/uptime")
    assert not ReplayRun([], ignored_topics=()).ignores("$SYS/uptime")


def test_deliveries_are_followed_by_their_identifiers() -> None:
    (pair,) = ReplayRun((script, None) for script in record("""
        dev > connect
        dev < publish a x qos=2 id=1
        dev < publish a x qos=2 id=1 dup
        dev > pubrec 1
        dev < pubrel 1
        dev > pubcomp 1
        dev < publish a x qos=2 id=1 dup
        dev < publish a y qos=1 id=2
        dev < publish a z qos=1 id=3
        dev > puback 3
    """)).pairs  # fmt: skip
    _, first, again, _, release, _, new, open_one, done = pair.script.entries[:9]

    assert pair.again == {id(again)}
    assert pair.releases == {id(first): release}
    assert pair.acknowledged == {id(first), id(done)}
    assert not {id(new), id(open_one)} & pair.acknowledged
