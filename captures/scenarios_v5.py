"""Recordings of what 5.0 brought: properties, aliases, limits, reason codes, shared subscriptions."""

from __future__ import annotations

import time

import mqttbytes as mb
from clients import Bare, Client, declare, listener
from paho.mqtt.subscribeoptions import SubscribeOptions
from rig import Rig
from scenario import scenario


@scenario(
    "v5-will-delay",
    "Will with properties and Will Delay Interval",
    "One client returns within the delay and its will is dropped; another stays away and its will fires after a "
    "second; a third asks for it with DISCONNECT 0x04.",
    explain={1: "client_closed", 3: "client_closed"},
)
def v5_will_delay(rig: Rig) -> None:
    """Delayed wills."""
    watcher = Client(rig, "watcher", "5.0")
    watcher.connect()
    watcher.subscribe(("status/#", 1))

    def robot(name: str, clean: bool = True) -> Client:
        made = Client(rig, name, "5.0", clean=clean)
        will = declare(
            "willmessage",
            WillDelayInterval=1,
            PayloadFormatIndicator=1,
            MessageExpiryInterval=60,
            ContentType="text/plain",
            ResponseTopic=f"ask/{name}",
            CorrelationData=b"\x00\x01",
            UserProperty=[("shift", "night"), ("shift", "late")],
        )
        made.paho.will_set(f"status/{name}", "lost", 1, properties=will)
        made.connect(declared=declare("connect", SessionExpiryInterval=30))
        return made

    robot("robot-1").vanish()
    back = robot("robot-1", clean=False)
    robot("robot-2").vanish()
    watcher.receive()
    back.disconnect()
    robot("robot-3").disconnect(reason=4)
    watcher.receive()
    watcher.disconnect()


@scenario(
    "v5-retain-handling",
    "Retain Handling, Retain As Published, No Local",
    "The same retained message against Retain Handling 0, 1 and 2, subscribed twice; live delivery with and without "
    "Retain As Published; a client that does not hear itself.",
)
def v5_retain_handling(rig: Rig) -> None:
    """Subscription options."""
    publisher = Client(rig, "source", "5.0")
    publisher.connect()
    publisher.publish("mode/now", "auto", 1, True, UserProperty=[("by", "ada")])
    subscribers = []
    for handling, published in ((0, False), (1, True), (2, True)):
        one = Client(rig, f"handling-{handling}", "5.0")
        one.connect()
        options = SubscribeOptions(qos=1, retainAsPublished=published, retainHandling=handling)
        one.subscribe(("mode/#", options))
        one.subscribe(("mode/#", options))
        one.receive(2 - handling)
        subscribers.append(one)
    publisher.subscribe(("mode/#", SubscribeOptions(qos=1, noLocal=True, retainHandling=2)))
    publisher.publish("mode/now", "manual", 1, True)
    for one in subscribers:
        one.receive(1)
        one.disconnect()
    publisher.disconnect()


@scenario(
    "v5-topic-alias-client",
    "Topic aliases from client to server, one of them re-mapped",
    "Two aliases set, used with an empty topic, alias 1 given to another topic and used again; an alias starts from "
    "scratch on the next connection.",
    topics=[
        "plant/line1/temperature", "plant/line1/temperature", "plant/line1/temperature", "plant/line1/temperature",
        "plant/line1/humidity", "plant/line1/humidity", "plant/line1/humidity", "plant/line1/humidity",
        "plant/line2/pressure", "plant/line2/pressure", "plant/line2/pressure", "plant/line2/pressure",
        "plant/line1/humidity", "plant/line1/humidity", "plant/line3/level", "plant/line3/level",
    ],
    notes="mosquitto 2.0 itself sends no aliases: each message is followed by its delivery with the full topic.",
)  # fmt: skip
def v5_topic_alias_client(rig: Rig) -> None:
    """Aliases of one direction."""
    listening = Client(rig, "logger", "5.0")
    listening.connect(declared=declare("connect", TopicAliasMaximum=4))
    listening.subscribe(("plant/#", 0))
    sensor = Client(rig, "sensor-1", "5.0")
    sensor.connect()
    for topic, alias in (
        ("plant/line1/temperature", 1), ("", 1), ("plant/line1/humidity", 2), ("", 2),
        ("plant/line2/pressure", 1), ("", 1), ("", 2),
    ):  # fmt: skip
        sensor.publish(topic, "7", TopicAlias=alias)
        listening.receive()
    sensor.disconnect()
    sensor = Client(rig, "sensor-1", "5.0")
    sensor.connect()
    sensor.publish("plant/line3/level", "7", TopicAlias=1)
    listening.receive()
    sensor.disconnect()
    listening.disconnect()


@scenario(
    "v5-shared-subscription",
    "A shared subscription deals messages out",
    "Two members of $share/workers/jobs/# and one ordinary subscriber; four messages at QoS 1.",
    clients=("paho-mqtt", "mosquitto_sub"),
)
def v5_shared_subscription(rig: Rig) -> None:
    """Work divided among a group."""
    for number in (1, 2):
        listener(rig, "5.0", "-i", f"worker-{number}", "-t", "$share/workers/jobs/#", "-q", "1", "-C", "2")
    everything = Client(rig, "audit", "5.0")
    everything.connect()
    everything.subscribe(("jobs/#", 1))
    office = Client(rig, "office", "5.0")
    office.connect()
    for number in range(4):
        office.publish(f"jobs/{number}", "do", 1)
    everything.receive(4)
    office.disconnect()
    everything.disconnect()


@scenario(
    "v5-publish-properties",
    "PUBLISH with every property, delivered unchanged",
    "Payload format, expiry, content type, response topic, binary correlation data and several user properties, two of "
    "them alike in name and value, on PUBLISH at QoS 0, 1 and 2.",
)
def v5_publish_properties(rig: Rig) -> None:
    """Everything a PUBLISH can declare."""
    listening = Client(rig, "logger", "5.0")
    listening.connect()
    listening.subscribe(("orders/#", 2), identifier=268435455)
    shop = Client(rig, "shop", "5.0")
    shop.connect()
    for qos in (0, 1, 2):
        shop.publish(
            "orders/new",
            '{"tea": 2}',
            qos,
            PayloadFormatIndicator=1,
            MessageExpiryInterval=3600,
            TopicAlias=qos + 1,
            ContentType="application/json",
            ResponseTopic="shop/answers",
            CorrelationData=b"\x00\xff\x10",
            UserProperty=[("item", "tea"), ("item", "tea"), ("item", "cup"), ("", ""), ("größe", "groß")],
        )
    listening.receive(3)
    shop.disconnect()
    listening.disconnect()


@scenario(
    "v5-connect-properties",
    "CONNECT and DISCONNECT with every property",
    "A CONNECT that declares all it may without authentication, and a DISCONNECT with session expiry, reason string "
    "and user properties; then an empty Client Identifier gets an assigned one.",
)
def v5_connect_properties(rig: Rig) -> None:
    """Everything a CONNECT can declare."""
    client = Client(rig, "declares-all", "5.0")
    client.connect(
        keep_alive=300,
        declared=declare(
            "connect",
            SessionExpiryInterval=120,
            ReceiveMaximum=10,
            MaximumPacketSize=4096,
            TopicAliasMaximum=8,
            RequestResponseInformation=1,
            RequestProblemInformation=0,
            UserProperty=[("firmware", "1.4"), ("site", "north"), ("site", "north")],
        ),
    )
    client.publish("hello", "world", 1)
    goodbye = declare(
        "disconnect",
        SessionExpiryInterval=5,
        ReasonString="going to sleep",
        UserProperty=[("battery", "12%"), ("battery", "low")],
    )
    client.disconnect(declared=goodbye)
    nameless = Client(rig, "", "5.0")
    nameless.connect()
    nameless.disconnect()


@scenario(
    "v5-subscription-identifiers",
    "Subscription Identifiers, one and several on a delivery",
    "Two overlapping subscriptions with identifiers 1 and 70000 and one without; one identifier is changed by "
    "subscribing again.",
)
def v5_subscription_identifiers(rig: Rig) -> None:
    """Which subscription caused a delivery."""
    client = Client(rig, "indexed", "5.0")
    client.connect()
    client.subscribe(("shop/#", 1), identifier=1, user=[("who", "till 3"), ("who", "till 4")])
    client.subscribe(("shop/tea/+", 1), identifier=70000)
    client.subscribe(("bar/#", 1))
    client.publish("shop/tea/green", "1")
    client.receive(1)
    client.publish("bar/milk", "2")
    client.receive(1)
    client.subscribe(("shop/#", 1), identifier=2)
    client.publish("shop/cups", "3")
    client.receive(1)
    client.disconnect()


@scenario(
    "v5-limits",
    "A CONNACK full of limits",
    "The broker announces Maximum QoS 1, no retained messages, Server Keep Alive, Receive Maximum, Maximum Packet "
    "Size and Topic Alias Maximum; a client that stays within them.",
    config="max_qos 1\nmax_topic_alias 3\nretain_available false\nmax_keepalive 30\nmax_packet_size 2000\n"
    "max_inflight_messages 5\n",
)
def v5_limits(rig: Rig) -> None:
    """Limits of the server."""
    client = Client(rig, "modest", "5.0")
    client.connect(keep_alive=600)
    client.subscribe(("a/b", 1))
    client.publish("a/b", "c", 1, TopicAlias=3)
    client.receive(1)
    client.disconnect()


@scenario(
    "v5-flow-control",
    "Receive Maximum 2, and a broker that exceeds it",
    "Five QoS 1 messages for a client that allows two in flight: the third waits for the first PUBACK, but then "
    "mosquitto 2.0.11 sends two for one and has three in flight.",
    clients=("paho-mqtt", "bare socket"),
)
def v5_flow_control(rig: Rig) -> None:
    """A window of two."""
    narrow = Bare(rig)
    narrow.send(mb.connect("narrow", "5.0", declared=mb.properties(b"\x21\x00\x02")))
    narrow.receive()
    narrow.send(mb.subscribe(1, ("queue", 1), declared=b"\x00"))
    narrow.receive()
    office = Client(rig, "office", "5.0")
    office.connect()
    for number in range(5):
        office.publish("queue", str(number), 1)
    for _ in range(5):
        received = narrow.receive()[0]
        narrow.send(mb.ack(0x40, int.from_bytes(received[9:11], "big")))
    narrow.send(mb.DISCONNECT)
    narrow.until_closed()
    office.disconnect()


@scenario(
    "v5-message-expiry",
    "Message Expiry Interval counts down, and a message that expires",
    "Two messages wait for an absent client; the one with 1 second is gone when it returns, the other one arrives with "
    "its interval lowered by the wait.",
)
def v5_message_expiry(rig: Rig) -> None:
    """Waiting costs lifetime."""
    client = Client(rig, "away", "5.0", clean=True)
    client.connect(declared=declare("connect", SessionExpiryInterval=60))
    client.subscribe(("news/#", 1))
    client.disconnect()
    office = Client(rig, "office", "5.0")
    office.connect()
    office.publish("news/short", "soon stale", 1, MessageExpiryInterval=1)
    office.publish("news/long", "keeps", 1, MessageExpiryInterval=100)
    time.sleep(2.5)
    client = Client(rig, "away", "5.0", clean=False)
    client.connect(declared=declare("connect", SessionExpiryInterval=0))
    client.receive(1)
    client.disconnect()
    office.disconnect()


@scenario(
    "v5-session-present",
    "A 5.0 session with Clean Start 0 and Session Expiry Interval",
    "Session Present 0, then 1, then 0 again after the session expired.",
)
def v5_session_present(rig: Rig) -> None:
    """Clean Start 0 three times."""
    for expiry, wait in ((1, 0.0), (1, 2.5), (0, 0.0)):
        client = Client(rig, "returns", "5.0", clean=False)
        client.connect(declared=declare("connect", SessionExpiryInterval=expiry))
        if wait == 0.0 and expiry:
            client.subscribe(("a/#", 1))
        client.disconnect()
        time.sleep(wait)


@scenario(
    "v5-request-response",
    "A request with Response Topic and Correlation Data, answered",
    "mosquitto_rr asks and waits; a paho client answers on the response topic with the same correlation data.",
    clients=("paho-mqtt", "mosquitto_rr"),
    notes="The asker's connection is still open when the capture ends.",
    explain={1: "client_closed"},
)
def v5_request_response(rig: Rig) -> None:
    """Request and response."""
    clock = Client(rig, "clock", "5.0")
    clock.connect()
    clock.subscribe(("ask/time", 1))
    rig.start(
        "mosquitto_rr", "-h", rig.host, "-p", str(rig.port), "-i", "asker", "-q", "1", "-t", "ask/time",
        "-e", "answers/asker", "-m", "now?", "-D", "publish", "correlation-data", "q-1",
    )  # fmt: skip
    request = clock.receive()[0]
    assert request.properties is not None
    answer = {"CorrelationData": request.properties.CorrelationData}
    clock.publish(request.properties.ResponseTopic, "12:00", 1, **answer)
    time.sleep(0.3)
    clock.disconnect()
