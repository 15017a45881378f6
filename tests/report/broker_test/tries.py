"""Runs to report, made by hand."""

from __future__ import annotations

from mqttscope.broker_test.drivers.minimize import MinimizedCase
from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import BrokerVerdict, Ruling
from mqttscope.mqtt import Connack, Connect, Properties, Publish
from mqttscope.report.broker_test.outcome import BrokerRun, ReducedCase
from tests.broker_test.flows import HASH, make_case, script
from tests.replay.recordings import conversation

LINE = "{ printf '\\020'; } | nc -w 2 h 1883 | xxd"


def run(broker: str = "mqtt://h:1883", *verdicts: tuple[str, BrokerVerdict]) -> BrokerRun:
    """A run with these verdicts; three cases of which the first deviates unless said otherwise."""
    rows = verdicts or (
        ("publish:qos-3", BrokerVerdict.TOLERATED),
        ("publish.topic_name:spaces", BrokerVerdict.CONFORMING),
        ("random:bits", BrokerVerdict.CONFORMING),
    )
    broker_run = BrokerRun(broker, "site.pcapng", HASH, 1, seconds=2.5)
    for number, (name, verdict) in enumerate(rows):
        statements = () if verdict is BrokerVerdict.CONFORMING else ("5.0 MQTT-4.13.1-1",)
        ruling = Ruling(verdict, "PINGREQ is <answered>", statements)
        broker_run.add(CaseResult(make_case(name, script()), ruling, number=number, seconds=0.25))
    broker_run.add(CaseResult(make_case("random:bits", script()), None, "the broker said \x1b[31mno", number=9))
    broker_run.too_long = 2
    return broker_run


def with_reduction(tried: BrokerRun) -> BrokerRun:
    """The same with the first case reduced."""
    small = MinimizedCase(tried.results[0].case, BrokerVerdict.TOLERATED, 12, 9, 200)
    tried.reduced[0] = ReducedCase(small, LINE)
    return tried


def secret() -> BrokerRun:
    """A run with one case that deviates, of a connection with a password."""
    login = Connect(protocol_level=5, user_name="me", password=b"open sesame", properties=Properties())
    own = conversation(
        (">", login),
        ("<", Connack(session_present=False, properties=Properties())),
        (">", Publish(topic_name="a", payload=b"1", properties=Properties())),
    )
    broker_run = BrokerRun("mqtt://h:1883", "site.pcapng", HASH, 1)
    ruling = Ruling(BrokerVerdict.TOLERATED, "PINGREQ is answered")
    broker_run.add(CaseResult(make_case("publish:qos-3", own), ruling, script=own, seconds=0.25))
    return broker_run
