"""Faults that keep a message from a client."""

from __future__ import annotations

import time

from mqttscope.explain.fates import Fate
from mqttscope.mqtt import Properties, Publish
from tests.lab.catalogue import EVERY_BROKER, EVERY_CLIENT, LIBRARIES, Truth, fault
from tests.lab.clients import NotPlantedError, wait
from tests.lab.ends import DYNAMIC_SECURITY, PUMP, dynamic_security
from tests.lab.rig import COMMAND, Lab
from tests.lab.wire import CLIENT, SERVER, Wire

TOPIC = "plant/7/alarm"
SETTLED_S = 1.2
"""Longer than a message may take to be looked for."""
ACL = "acl_file {folder}/acl\n"


def _unanswered(lab: Lab, qos: int) -> Publish:
    """A message of which the sender does not wait to hear."""
    properties = Properties() if lab.is_five else None
    return Publish(qos=qos, topic_name=TOPIC, packet_identifier=9, payload=b"21.5", properties=properties)


def _lost(lab: Lab, client: object, what: bytes = b"21.5") -> None:
    """The client has not got the message."""
    time.sleep(SETTLED_S)
    got = any(payload == what and topic == TOPIC for topic, payload in client.messages)  # type: ignore[attr-defined]
    lab.need(not got, "the message came")
    if not (isinstance(lab.network, Wire) and lab.network.is_cut):
        # The recording has more afterwards, so that its end explains nothing.
        lab.connected("later").disconnect()


@fault(clients=EVERY_CLIENT, brokers=EVERY_BROKER)
def delivered(lab: Lab) -> Truth:
    client = lab.subscribed(PUMP, "plant/+/alarm", 1)
    lab.publish(TOPIC, lab.chance.randrange(3))
    if lab.draw.client == COMMAND:
        time.sleep(SETTLED_S)
    else:
        wait(lambda: client.messages, "the message did not come")
    return Truth.lost(TOPIC, PUMP, Fate.DELIVERED)


@fault(clients=EVERY_CLIENT, config=ACL, files={"acl": "topic readwrite other/#\ntopic read plant/#\n"})
def publish_denied(lab: Lab) -> Truth:
    """The access rules of the broker let nobody publish there."""
    client = lab.subscribed(PUMP, "plant/#", 1)
    qos = lab.chance.randrange(2)
    lab.publish(TOPIC, qos)
    lab.logged("Denied PUBLISH")
    _lost(lab, client)
    if lab.is_five and qos:
        return Truth.lost(TOPIC, PUMP, Fate.MESSAGE_REFUSED)
    return Truth.lost(TOPIC, PUMP, Fate.NOT_SENT)


@fault(clients=EVERY_CLIENT, config=ACL, files={"acl": "topic readwrite other/#\ntopic write plant/#\n"})
def read_denied(lab: Lab) -> Truth:
    """mosquitto grants the subscription, and sends nothing."""
    client = lab.subscribed(PUMP, "plant/#", 1)
    lab.publish(TOPIC, lab.chance.randrange(3))
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.NOT_SENT)


@fault(config=DYNAMIC_SECURITY, clients=LIBRARIES,
       files=dynamic_security({"acltype": "subscribePattern", "topic": "plant/#", "allow": False}))  # fmt: skip
def subscription_denied(lab: Lab) -> Truth:
    client = lab.client(PUMP, user="pump", password="secret")
    lab.need(client.connect() == 0, "refused")
    code = client.subscribe("plant/#", 1)
    lab.need(code >= 0x80, f"SUBACK {code}")
    sender = lab.connected("sender", user="admin", password="secret")
    sender.publish(TOPIC, b"21.5", 1)
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.SUBSCRIPTION_REFUSED)


@fault(clients=EVERY_CLIENT, brokers=EVERY_BROKER)
def other_filter(lab: Lab) -> Truth:
    client = lab.subscribed(PUMP, lab.chance.choice(("Plant/7/alarm", "plant/7/alarm/", "plant/+", "/plant/7/alarm")))
    lab.publish(TOPIC, 1)
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.NO_SUBSCRIPTION)


@fault(clients=EVERY_CLIENT, brokers=EVERY_BROKER)
def subscribed_late(lab: Lab) -> Truth:
    lab.publish(TOPIC, 1)
    time.sleep(0.3)
    client = lab.subscribed(PUMP, "plant/7/#")
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.SUBSCRIBED_LATER)


@fault(versions=("5.0",))
def retained_not_sent(lab: Lab) -> Truth:
    """Retain Handling 2: the client wants no retained messages."""
    lab.publish(TOPIC, 1, retain=True)
    time.sleep(0.3)
    client = lab.connected(PUMP)
    client.subscribe("plant/#", 1, retain_handling=2)
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.SUBSCRIBED_LATER)


@fault()
def unsubscribed(lab: Lab) -> Truth:
    client = lab.connected(PUMP)
    client.subscribe("plant/#")
    time.sleep(0.2)
    client.unsubscribe("plant/#")
    time.sleep(0.2)
    lab.publish(TOPIC, 1)
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.UNSUBSCRIBED)


@fault()
def session_gone(lab: Lab) -> Truth:
    """The client comes back with a new session, and does not subscribe again."""
    client = lab.connected(PUMP)
    client.subscribe("plant/#", 1)
    time.sleep(0.2)
    (client.disconnect if lab.chance.random() < 0.5 else client.kill)()
    time.sleep(0.3)
    back = lab.connected(PUMP)
    lab.publish(TOPIC, 1)
    _lost(lab, back)
    return Truth.lost(TOPIC, PUMP, Fate.SESSION_GONE)


@fault(clients=LIBRARIES)
def away_without_session(lab: Lab) -> Truth:
    client = lab.subscribed(PUMP, "plant/#", 1)
    time.sleep(0.2)
    client.disconnect()
    time.sleep(0.3)
    lab.publish(TOPIC, 1)
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.OFFLINE, Fate.SESSION_GONE)


@fault()
def away_with_qos_0(lab: Lab) -> Truth:
    """A session is kept, and the broker keeps no message of QoS 0 for it."""
    client = lab.connected(PUMP, clean=False, session_s=300)
    client.subscribe("plant/#", 1)
    time.sleep(0.2)
    client.disconnect()
    time.sleep(0.3)
    lab.publish(TOPIC, 0)
    time.sleep(0.2)
    back = lab.connected(PUMP, clean=False, session_s=300)
    _lost(lab, back)
    return Truth.lost(TOPIC, PUMP, Fate.OFFLINE)


@fault(versions=("5.0",))
def expired(lab: Lab) -> Truth:
    client = lab.connected(PUMP, clean=False, session_s=300)
    client.subscribe("plant/#", 1)
    time.sleep(0.2)
    client.disconnect()
    time.sleep(0.2)
    sender = lab.connected("sender")
    sender.publish(TOPIC, b"21.5", 1, properties=Properties(message_expiry_interval=1))
    time.sleep(2.5)
    back = lab.connected(PUMP, clean=False, session_s=300)
    _lost(lab, back)
    return Truth.lost(TOPIC, PUMP, Fate.EXPIRED)


@fault(versions=("5.0",))
def quota_full(lab: Lab) -> Truth:
    """The client has as many messages as its Receive Maximum lets it, and acknowledges none."""
    maximum = lab.chance.choice((1, 2, 5))
    client = lab.connected(PUMP, receive_maximum=maximum, acknowledges=False)
    client.subscribe("plant/#", 1)
    sender = lab.connected("sender")
    for number in range(maximum):
        sender.publish("plant/7/level", b"%d" % number, 1)
    wait(lambda: len(client.messages) == maximum, "too few messages")
    time.sleep(0.2)
    sender.publish(TOPIC, b"21.5", 1)
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.QUOTA_FULL)


@fault(versions=("5.0",))
def too_large_for_client(lab: Lab) -> Truth:
    client = lab.connected(PUMP, maximum_packet_size=lab.chance.choice((100, 1000)))
    client.subscribe("plant/#", 1)
    payload = b"x" * 1500
    lab.publish(TOPIC, 1, payload)
    _lost(lab, client, payload)
    return Truth.lost(TOPIC, PUMP, Fate.TOO_LARGE)


@fault()
def not_released(lab: Lab) -> Truth:
    """A message of QoS 2 whose publisher sends no PUBREL."""
    client = lab.connected(PUMP)
    client.subscribe("plant/#", 2)
    sender = lab.connected("sender")
    sender.send(_unanswered(lab, 2))
    lab.logged("Sending PUBREC to sender")
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.NOT_RELEASED)


@fault(versions=("5.0",))
def no_local(lab: Lab) -> Truth:
    client = lab.connected(PUMP)
    client.subscribe("plant/#", 1, no_local=True)
    time.sleep(0.2)
    client.publish(TOPIC, b"21.5", 1)
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.NOT_CONCERNED)


@fault()
def slow_subscriber(lab: Lab) -> Truth:
    """The client does not read: its window closes, and later messages wait in the broker."""
    client = lab.connected(PUMP, buffer=4096, keep_alive=600, pings=False)
    client.subscribe("plant/#")
    time.sleep(0.2)
    client.stop_reading()
    sender = lab.connected("sender")
    for _ in range(lab.chance.choice((120, 200))):
        sender.publish("plant/7/level", b"x" * 60_000)
    # One segment a round trip, until the receive buffer is full and the window closed.
    time.sleep(0.5 + 0.12 * lab.draw.delay_ms)
    sender.publish(TOPIC, b"21.5", 1)
    _lost(lab, client)
    return Truth.lost(TOPIC, PUMP, Fate.STALLED)


@fault(needs_wire=True)
def link_lost_before_delivery(lab: Lab) -> Truth:
    """The path to the client is lost as the broker sends."""
    client = lab.connected(PUMP, pings=False, keep_alive=600)
    client.subscribe("plant/#", 1)
    sender = lab.connected("sender")
    time.sleep(0.2)
    lab.wire.cut(SERVER)
    sender.send(_unanswered(lab, 1))
    lab.logged("Sending PUBLISH to pump-1")
    time.sleep(1.5)
    _lost(lab, client)
    if lab.draw.recorded_at == SERVER:
        return Truth.lost(TOPIC, PUMP, Fate.NOT_ACKNOWLEDGED)
    # Nothing of the broker is seen any more, not even that it received the message.
    return Truth.lost(TOPIC, PUMP, Fate.NOT_RECEIVED)


@fault(needs_wire=True, recorded_at=(CLIENT,))
def link_lost_before_publish(lab: Lab) -> Truth:
    """The message does not get as far as the broker."""
    client = lab.connected(PUMP)
    client.subscribe("plant/#", 1)
    sender = lab.connected("sender")
    time.sleep(0.2)
    lab.wire.cut(CLIENT)
    sender.send(_unanswered(lab, 1))
    time.sleep(1.5)
    _lost(lab, client)
    lab.need("Received PUBLISH from sender" not in lab.log, "the broker got it")
    return Truth.lost(TOPIC, PUMP, Fate.NOT_RECEIVED)


@fault(versions=("5.0",))
def share_member_away(lab: Lab) -> Truth:
    """A member of the share is away and keeps its session: the broker gives it messages."""
    away = lab.connected("away", clean=False, session_s=300)
    away.subscribe("$share/group/plant/#", 1)
    client = lab.connected(PUMP)
    client.subscribe("$share/group/plant/#", 1)
    time.sleep(0.2)
    away.disconnect()
    time.sleep(0.2)
    sender = lab.connected("sender")
    for number in range(2):
        sender.publish(TOPIC, b"%d" % number, 1)
        time.sleep(0.2)
        if len(client.messages) <= number:
            return Truth(topic=TOPIC, fates={PUMP: frozenset((Fate.OTHER_MEMBER,))})
    raise NotPlantedError("every message came")
