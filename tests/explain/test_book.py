"""What connections have to do with each other."""

from __future__ import annotations

from mqttscope.explain import Explainer, book
from mqttscope.explain.book import host
from mqttscope.lint.examples import client, closes, on, opened, server
from mqttscope.mqtt.packets import Disconnect, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from tests.explain.running import explained

WILL = Will(will_topic="status/c1", will_payload=b"gone")
WATCHING = on(
    1,
    *opened(client_identifier="watch"),
    client(Subscribe(packet_identifier=1, subscriptions=[Subscription("status/#")])),
    server(Suback(packet_identifier=1, reason_codes=[0])),
)
GONE = on(1, server(Publish(topic_name="status/c1", payload=b"gone"), after=0.5))


def test_a_published_will_is_told_with_the_connection_that_received_it() -> None:
    one = explained(*opened(will=WILL), *WATCHING, closes("client"), *GONE)[0]

    (told,) = one.afterwards
    assert told.text.startswith("the will was published: status/c1, as connection #1 received it")


def test_who_says_goodbye_has_no_will() -> None:
    one = explained(*opened(will=WILL), *WATCHING, client(Disconnect()), closes("client"), *GONE)[0]

    assert one.afterwards == ()


def test_the_return_of_a_client_is_told() -> None:
    again = on(1, *opened())
    one = explained(*opened(), closes("client"), again[0].__class__("client", again[0].packets, 7.0, connection=1))[0]

    assert [told.text for told in one.afterwards] == ["the client came back 7.000 s later as #1 (10.0.0.1:50001)"] or (
        one.afterwards[0].text.startswith("the client came back 7.0")
    )


def test_a_client_that_comes_back_much_later_is_no_consequence() -> None:
    again = opened()[0]
    one = explained(*opened(), closes("client"), again.__class__("client", again.packets, 500.0, connection=1))[0]

    assert one.afterwards == ()


def test_clients_are_bounded_and_the_limit_is_told() -> None:
    most, book.MAX_CLIENTS = book.MAX_CLIENTS, 2
    explainer = Explainer()
    try:
        explained(
            *(step for number in range(4) for step in on(number, *opened(client_identifier=f"c{number}"))),
            explainer=explainer,
        )
    finally:
        book.MAX_CLIENTS = most

    assert len(explainer.book.arrivals) == 2
    assert explainer.totals.dropped == {"clients": 2}


def test_the_host_of_an_endpoint() -> None:
    assert (host("10.0.0.1:1883"), host("[fd00::1]:1883")) == ("10.0.0.1", "[fd00::1]")
