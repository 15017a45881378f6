"""Faults that end a connection."""

from __future__ import annotations

import base64
import hashlib
import json
import signal
import socket
import ssl
import time
from contextlib import suppress

from mqttscope.explain.model import Cause
from mqttscope.mqtt import Connect, Disconnect, Pingreq, Properties, Publish, encode
from tests.lab.catalogue import (
    ANY,
    CLOCK,
    EVERY_BROKER,
    EVERY_CLIENT,
    LATE,
    LIBRARIES,
    ONE_WAY,
    SHORT,
    Truth,
    fault,
)
from tests.lab.clients import PLAIN, TLS, WEBSOCKET, NotPlantedError, Paho, Raw, connect_packet, wait
from tests.lab.rig import COMMAND, EMPTY, PAHO, RAW, IdleProxy, Lab
from tests.lab.wire import CLIENT, SERVER

PUMP = "pump-1"
CHECKED = (PLAIN, TLS)
"""Transports on which mosquitto 2.0.11 looks for the Keep Alive in time."""
NO_ANONYMOUS = "allow_anonymous false\npassword_file {folder}/passwords\n"
SALT = b"twelve bytes"
HASH = base64.b64encode(hashlib.pbkdf2_hmac("sha512", b"secret", SALT, 101)).decode()
ENCODED_SALT = base64.b64encode(SALT).decode()
PASSWORDS = {"passwords": f"pump:$7$101${ENCODED_SALT}${HASH}\n"}
DYNAMIC_SECURITY = (
    "plugin /usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so\nplugin_opt_config_file {folder}/dynsec.json\n"
)


def dynamic_security(*acls: dict[str, object]) -> dict[str, str]:
    """Configuration of mosquitto's plugin: an administrator, and a client with these access rules."""
    secret = {"salt": ENCODED_SALT, "password": HASH, "iterations": 101}
    control = {"acltype": "publishClientSend", "topic": "$CONTROL/#", "allow": True}
    document = {
        "defaultACLAccess": dict.fromkeys(
            ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe"), True
        ),
        "clients": [
            {"username": "admin", **secret, "roles": [{"rolename": "admin"}]},
            {"username": "pump", **secret, "roles": [{"rolename": "pump"}]},
        ],
        "groups": [],
        "roles": [{"rolename": "admin", "acls": [control]}, {"rolename": "pump", "acls": list(acls)}],
    }
    return {"dynsec.json": json.dumps(document)}


def closed(lab: Lab, client: object, seconds: float = 6.0) -> None:
    """Wait until the other side has closed the connection of a client."""
    wait(client.is_closed, "the connection was not closed", seconds)  # type: ignore[attr-defined]


def refused(lab: Lab, **setup: object) -> int:
    """Connect; how the broker answers belongs to the fault."""
    with suppress(ConnectionError, NotPlantedError):
        return lab.client(PUMP, **setup).connect()
    return -1


def _blind(lab: Lab, *causes: Cause) -> tuple[Cause, ...]:
    """Causes that are right where nothing can be decrypted."""
    return causes if lab.is_blind else ()


@fault(clients=EVERY_CLIENT, brokers=EVERY_BROKER, damages=(LATE, SHORT, CLOCK, ONE_WAY))
def normal(lab: Lab) -> Truth:
    client = lab.subscribed(PUMP, "plant/1")
    lab.publish("plant/1", lab.chance.randrange(2))
    time.sleep(0.2)
    client.disconnect()
    return Truth.end(PUMP, Cause.NORMAL)


@fault(clients=LIBRARIES, config=NO_ANONYMOUS, files=PASSWORDS)
def wrong_password(lab: Lab) -> Truth:
    code = refused(lab, user="pump", password="wrong")
    lab.need(code in (5, 0x86, 0x87, 4), f"CONNACK {code}")
    return Truth.end(PUMP, Cause.BAD_CREDENTIALS, Cause.NOT_AUTHORIZED, *_blind(lab, Cause.CONNECT_REFUSED))


@fault(clients=LIBRARIES, config=NO_ANONYMOUS, files=PASSWORDS)
def unknown_user(lab: Lab) -> Truth:
    code = refused(lab, user="nobody", password="secret")
    lab.need(code in (5, 0x86, 0x87, 4), f"CONNACK {code}")
    return Truth.end(PUMP, Cause.BAD_CREDENTIALS, Cause.NOT_AUTHORIZED, *_blind(lab, Cause.CONNECT_REFUSED))


def _returns(lab: Lab, name: str, tries: int = 1) -> None:
    """A client that tries to come back."""
    for _ in range(tries):
        with suppress(OSError):
            lab.raw(name).connect()
        time.sleep(0.1)


@fault(clients=LIBRARIES, brokers=EVERY_BROKER)
def broker_killed(lab: Lab) -> Truth:
    names = [PUMP, "valve-2", "fan-3"][: lab.chance.choice((2, 3))]
    clients = [lab.subscribed(name, "plant/#") for name in names]
    time.sleep(0.2)
    lab.stop_broker(signal.SIGKILL)
    for client in clients:
        closed(lab, client)
    for name in names:
        _returns(lab, name)
    return Truth(
        {name: frozenset((Cause.SERVER_RESTART,)) for name in names}
        | {ANY: frozenset((Cause.NOT_LISTENING, Cause.SERVER_RESTART))}
    )


@fault(clients=LIBRARIES, damages=(LATE, ONE_WAY, CLOCK))
def broker_stopped(lab: Lab) -> Truth:
    names = [PUMP, "valve-2", "fan-3"][: lab.chance.choice((2, 3))]
    clients = [lab.subscribed(name, "plant/#") for name in names]
    time.sleep(0.2)
    lab.stop_broker()
    lab.logged("terminating")
    for client in clients:
        closed(lab, client)
    for name in names:
        _returns(lab, name)
    return Truth(
        {name: frozenset((Cause.SERVER_RESTART,)) for name in names}
        | {ANY: frozenset((Cause.NOT_LISTENING, Cause.SERVER_RESTART))}
    )


@fault(clients=EVERY_CLIENT, transports=(PLAIN, TLS))
def broker_restarted(lab: Lab) -> Truth:
    names = [PUMP, "valve-2", "fan-3"]
    clients = [lab.subscribed(name, "plant/#") for name in names]
    time.sleep(0.2)
    lab.stop_broker(lab.chance.choice((signal.SIGTERM, signal.SIGKILL)))
    time.sleep(0.3)
    lab.start_broker()
    if lab.draw.client == COMMAND:
        time.sleep(2)
    else:
        for client, name in zip(clients, names, strict=True):
            closed(lab, client)
            lab.need(lab.raw(name).connect() == 0, "refused")
    return Truth({name: frozenset((Cause.SERVER_RESTART,)) for name in names})


@fault(needs_wire=True, clients=LIBRARIES, recorded_at=(SERVER,), transports=CHECKED, damages=(CLOCK, SHORT))
def link_lost(lab: Lab) -> Truth:
    lab.subscribed(PUMP, "plant/1", keep_alive=2)
    time.sleep(0.3)
    lab.wire.cut()
    lab.logged("exceeded timeout", 9)
    return Truth.end(PUMP, Cause.KEEP_ALIVE, Cause.HALF_OPEN)


@fault(needs_wire=True, clients=LIBRARIES, recorded_at=(SERVER,), transports=CHECKED)
def link_of_client_lost(lab: Lab) -> Truth:
    """Nothing of the client comes any more; it hears the broker."""
    lab.subscribed(PUMP, "plant/1", keep_alive=2)
    time.sleep(0.3)
    lab.wire.cut(CLIENT)
    lab.logged("exceeded timeout", 9)
    return Truth.end(PUMP, Cause.KEEP_ALIVE, Cause.HALF_OPEN)


@fault(needs_wire=True, clients=(PAHO,), recorded_at=(CLIENT,))
def link_of_server_lost(lab: Lab) -> Truth:
    """Nothing of the broker comes any more: paho gives up."""
    client = lab.subscribed(PUMP, "plant/1", keep_alive=1)
    time.sleep(0.3)
    lab.wire.cut(SERVER)
    closed(lab, client, 8)
    # paho looks at its clock about once a second, which is the whole Keep Alive.
    return Truth.end(PUMP, Cause.NO_PING_RESPONSE, Cause.HALF_OPEN, guilty=("client",))


@fault(clients=(PAHO,))
def broker_hangs(lab: Lab) -> Truth:
    """The broker is stopped: its kernel acknowledges, and no PINGRESP comes."""
    client = lab.subscribed(PUMP, "plant/1", keep_alive=1)
    time.sleep(0.2)
    assert lab.broker is not None
    lab.broker.send_signal(signal.SIGSTOP)
    closed(lab, client, 8)
    return Truth.end(PUMP, Cause.NO_PING_RESPONSE, also=(Cause.SERVER_UNAVAILABLE,), guilty=("client",))


@fault(transports=CHECKED, damages=(CLOCK, SHORT))
def client_stops_pinging(lab: Lab) -> Truth:
    client = lab.connected(PUMP, keep_alive=lab.chance.choice((1, 2)), pings=False)
    client.publish("plant/1", b"21.5")
    lab.logged("exceeded timeout", 9)
    closed(lab, client, 9)
    return Truth.end(PUMP, Cause.KEEP_ALIVE, guilty=("client",))


@fault(needs_wire=True, clients=LIBRARIES)
def middlebox_reset(lab: Lab) -> Truth:
    client = lab.subscribed(PUMP, "plant/1")
    lab.publish("plant/1")
    time.sleep(0.2)
    assert isinstance(client, Raw | Paho)
    # Some reset one side alone.
    receivers = lab.chance.choice(((CLIENT, SERVER), (lab.draw.recorded_at,)))
    lab.need(lab.wire.reset(client.port, lab.chance.choice((39, 121, 247)), receivers), "no flow")
    if CLIENT in receivers:
        closed(lab, client)
    else:
        lab.logged(f"Client {PUMP} (disconnected|closed)")
    return Truth.end(PUMP, Cause.MIDDLEBOX_RESET)


@fault(clients=EVERY_CLIENT, damages=(LATE, ONE_WAY, CLOCK))
def taken_over(lab: Lab) -> Truth:
    first = lab.subscribed(PUMP, "plant/1")
    time.sleep(0.4)
    second = lab.raw(PUMP)
    lab.need(second.connect() == 0, "refused")
    lab.logged("already connected, closing old")
    if lab.draw.client == COMMAND:
        first.kill()
    else:
        closed(lab, first)
    return Truth.end(PUMP, Cause.TAKEN_OVER)


@fault(clients=EVERY_CLIENT, brokers=EVERY_BROKER, damages=(SHORT, LATE, ONE_WAY))
def client_killed(lab: Lab) -> Truth:
    client = lab.subscribed(PUMP, "plant/1")
    lab.publish("plant/1")
    time.sleep(0.3)
    client.kill()
    return Truth.end(PUMP, Cause.CLIENT_CLOSED, Cause.CLIENT_RESET)


@fault(clients=EVERY_CLIENT)
def will_delivered(lab: Lab) -> Truth:
    watcher = lab.connected("watcher")
    watcher.subscribe("wills/#")
    client = lab.subscribed(PUMP, "plant/1", will="wills/pump-1")
    time.sleep(0.3)
    client.kill()
    wait(lambda: watcher.messages, "no will")
    truth = Truth.end(PUMP, Cause.CLIENT_CLOSED, Cause.CLIENT_RESET)
    truth.afterwards = "will"
    return truth


@fault(clients=LIBRARIES, config="max_packet_size 20000\n", damages=(SHORT, ONE_WAY))
def packet_too_large(lab: Lab) -> Truth:
    client = lab.client(PUMP)
    lab.need(client.connect() == 0, "refused")
    client.publish("plant/1", b"21.5")
    time.sleep(0.2)
    with suppress(OSError):
        client.publish("plant/1", b"x" * lab.chance.choice((20_100, 30_000, 60_000)))
    closed(lab, client)
    lab.logged("oversize|packet too large|too large")
    # In 5.0 the broker has announced its limit: the client breaks it.
    return Truth.end(PUMP, Cause.PACKET_TOO_LARGE, guilty=("client",) if lab.is_five else ())


MALFORMED = {
    "both QoS bits": bytes.fromhex("360700036 12f62000 1".replace(" ", "")),
    "type 0": bytes.fromhex("0000"),
    "SUBSCRIBE with wrong flags": bytes.fromhex("800800010003612f6200"),
    "PUBREL with wrong flags": bytes.fromhex("60020001"),
    "topic with a wildcard": bytes.fromhex("30060003612f2321"),
    "SUBSCRIBE without a filter": bytes.fromhex("82020001"),
    "Remaining Length of five bytes": bytes.fromhex("30ffffffffff01"),
}


@fault()
def malformed_packet(lab: Lab) -> Truth:
    client = lab.connected(PUMP)
    client.publish("plant/1", b"21.5")
    time.sleep(0.2)
    raw = lab.chance.choice(sorted(MALFORMED.items()))[1]
    if lab.is_five and raw[0] in (0x80, 0x82, 0x30, 0x36) and raw[1] != 0xFF:
        # An empty property block.
        place = 4 if raw[0] in (0x80, 0x82) else 4 + 3 + (2 if raw[0] == 0x36 else 0)
        raw = raw[:1] + bytes([raw[1] + 1]) + raw[2:place] + b"\0" + raw[place:]
    client.send(raw)
    closed(lab, client)
    return Truth.end(PUMP, Cause.PROTOCOL_VIOLATION, guilty=("client",))


@fault()
def wrong_remaining_length(lab: Lab) -> Truth:
    client = lab.connected(PUMP)
    client.publish("plant/1", b"21.5")
    time.sleep(0.2)
    packet = encode(
        Publish(
            topic_name="plant/1", payload=b"21.5 bar \0\0\0\0\0\0", properties=Properties() if lab.is_five else None
        ),
        lab.version,
    )
    # What is left over is a packet of type 0, whole.
    short = lab.chance.choice((2, 4, 6))
    client.send(packet[:1] + bytes([packet[1] - short]) + packet[2:])
    with suppress(OSError):
        client.send(Pingreq())
    closed(lab, client)
    # mosquitto 2.0.11 answers each packet of type 0 over WebSocket with a DISCONNECT, though one ends the connection.
    return Truth.end(PUMP, Cause.PROTOCOL_VIOLATION, guilty=("client", "server"))


@fault(damages=(LATE, ONE_WAY, CLOCK))
def second_connect(lab: Lab) -> Truth:
    client = lab.connected(PUMP)
    time.sleep(0.2)
    client.send(connect_packet(client.setup, lab.version))
    closed(lab, client)
    return Truth.end(PUMP, Cause.PROTOCOL_VIOLATION, guilty=("client",))


@fault()
def no_connect_first(lab: Lab) -> Truth:
    client = lab.raw(PUMP)
    client.open()
    client.send(
        lab.chance.choice(
            (
                Pingreq(),
                Publish(topic_name="plant/1", payload=b"21.5", properties=Properties() if lab.is_five else None),
            )
        )
    )
    closed(lab, client)
    return Truth.end(ANY, Cause.PROTOCOL_VIOLATION, guilty=("client",))


def _attempt(lab: Lab, transport: str) -> bool:
    """Connect with a transport that the port does not have; whether another client shows what the port has."""
    is_shown = lab.chance.random() < 0.6
    if is_shown:
        lab.connected("neighbour")
        time.sleep(0.2)
    client = lab.raw(PUMP, lab.target(transport=transport))
    with suppress(OSError, ssl.SSLError, NotPlantedError):
        client.connect()
        raise NotPlantedError("connected")
    if client.stream is not None:
        client.kill()
    return is_shown


@fault(transports=(TLS,))
def plain_to_tls(lab: Lab) -> Truth:
    is_shown = _attempt(lab, PLAIN)
    # The broker closes without an answer: nothing else says that the port has TLS.
    return Truth.end(PUMP, Cause.WRONG_LISTENER, *(() if is_shown else (Cause.NO_CONNACK,)))


@fault(transports=(PLAIN,))
def tls_to_plain(lab: Lab) -> Truth:
    _attempt(lab, TLS)
    return Truth.end(ANY, Cause.WRONG_LISTENER)


@fault(transports=(PLAIN,))
def websocket_to_plain(lab: Lab) -> Truth:
    is_shown = _attempt(lab, WEBSOCKET)
    modest = (Cause.SERVER_RESET, Cause.SERVER_CLOSED)
    return Truth.end(ANY, Cause.WRONG_LISTENER, *(() if is_shown else modest))


@fault(transports=(PLAIN,))
def nothing_listens(lab: Lab) -> Truth:
    lab.stop_broker()
    for _ in range(lab.chance.choice((1, 3))):
        with suppress(ConnectionRefusedError):
            lab.raw(PUMP).connect()
            raise NotPlantedError("connected")
    return Truth.end(ANY, Cause.NOT_LISTENING)


@fault(needs_wire=True, transports=(PLAIN,), recorded_at=(CLIENT,))
def unreachable(lab: Lab) -> Truth:
    # The client knows the hardware address of the broker, or it would send no SYN.
    lab.connected("neighbour")
    lab.wire.cut(lab.chance.choice((CLIENT, SERVER)))
    with lab.network.on(CLIENT), socket.socket() as tcp:
        tcp.settimeout(4)
        with suppress(OSError):
            tcp.connect((lab.target().host, lab.port))
            raise NotPlantedError("connected")
    return Truth.end(ANY, Cause.UNREACHABLE)


@fault()
def silent_server(lab: Lab) -> Truth:
    """A server that accepts, acknowledges at TCP, and never answers."""
    lab.stop_broker()
    with lab.network.on(SERVER):
        listener = socket.create_server((lab.network.server_address, lab.port))
    lab.cleanup.append(listener.close)
    client = lab.raw(PUMP, lab.target(transport=PLAIN))
    client.open()
    client.send(connect_packet(client.setup, lab.version))
    time.sleep(lab.chance.choice((1.0, 2.5)))
    client.kill()
    return Truth.end(PUMP, Cause.NO_CONNACK, also=(Cause.WRONG_LISTENER,))


@fault(clients=LIBRARIES, config="max_keepalive 60\n", damages=(CLOCK,))
def idle_timeout(lab: Lab) -> Truth:
    """A load balancer in front of the broker closes after an idle second."""
    front = lab.port_of(PLAIN) + 1 if lab.network.obeys else lab.port_of(PLAIN)
    proxy = IdleProxy(lab, front, lab.chance.choice((0.8, 1.0, 1.5)))
    names = [PUMP, "valve-2", "fan-3", "lamp-4"]
    clients = []
    for name in names:
        client = lab.client(name, keep_alive=60)
        client.target = lab.target(port=front)  # type: ignore[attr-defined]
        lab.need(client.connect() == 0, "refused")
        client.subscribe("plant/1")
        clients.append(client)
        time.sleep(0.15)
    for client in clients:
        closed(lab, client)
    silences = sorted(proxy.silences)
    lab.need(len(silences) == len(names), "the proxy did not close")
    lab.need(silences[-1] < 1.015 * silences[0], "the proxy was late")
    # Nothing else says that TLS on such a port goes with MQTT.
    words = ("--port", f"{front}:tls") if lab.draw.transport == TLS else ()
    return Truth({name: frozenset((Cause.IDLE_TIMEOUT,)) for name in names}, words=words)


@fault(clients=(RAW,))
def version_refused(lab: Lab) -> Truth:
    client = lab.raw(PUMP)
    client.open()
    packet = encode(Connect(protocol_level=4, client_identifier=PUMP, keep_alive=60), lab.version)
    packet = packet.replace(b"MQTT\x04", b"MQTT" + bytes([lab.chance.choice((6, 7))]))
    client.send(packet)
    closed(lab, client)
    # A broker need not answer such a CONNECT in a version that it does not know.
    return Truth.end(PUMP, Cause.UNSUPPORTED_VERSION, *_blind(lab, Cause.CONNECT_REFUSED), guilty=("client",))


@fault(config="allow_zero_length_clientid false\n", versions=("3.1.1",))
def identifier_rejected(lab: Lab) -> Truth:
    client = lab.raw("")
    code = client.connect()
    lab.need(code == 2, f"CONNACK {code}")
    return Truth.end(EMPTY, Cause.CLIENT_IDENTIFIER_REJECTED, *_blind(lab, Cause.CONNECT_REFUSED))


@fault(config="retain_available false\n", clients=LIBRARIES)
def retain_not_available(lab: Lab) -> Truth:
    client = lab.client(PUMP)
    lab.need(client.connect() == 0, "refused")
    # The answer shows that the client may publish there.
    client.publish("plant/1", b"21.5", 1)
    time.sleep(0.2)
    with suppress(NotPlantedError, OSError, ValueError):
        client.publish("plant/1", b"21.5", 1, retain=True)
    closed(lab, client)
    return Truth.end(PUMP, Cause.NOT_SUPPORTED, guilty=("client",) if lab.is_five else ())


@fault(config="max_qos 1\n", versions=("5.0",))
def qos_not_supported(lab: Lab) -> Truth:
    client = lab.connected(PUMP)
    client.publish("plant/1", b"21.5", 1)
    time.sleep(0.2)
    with suppress(NotPlantedError, OSError):
        client.publish("plant/1", b"21.5", 2)
    closed(lab, client)
    return Truth.end(PUMP, Cause.NOT_SUPPORTED, guilty=("client",))


@fault(versions=("5.0",))
def topic_alias_too_large(lab: Lab) -> Truth:
    client = lab.connected(PUMP)
    client.publish("plant/1", b"21.5")
    time.sleep(0.2)
    client.publish("plant/1", b"21.5", properties=Properties(topic_alias=lab.chance.choice((11, 200, 60_000))))
    closed(lab, client)
    return Truth.end(PUMP, Cause.TOPIC_ALIAS, guilty=("client",))


@fault(transports=(TLS,))
def authority_not_trusted(lab: Lab) -> Truth:
    client = lab.raw(PUMP, lab.target(authority=str(lab.certificates / "other.pem"), highest=ssl.TLSVersion.TLSv1_2))
    with suppress(ssl.SSLError):
        client.connect()
        raise NotPlantedError("connected")
    return Truth.end(ANY, Cause.TLS_FAILURE)


@fault(transports=(TLS,), config="tls_version tlsv1.3\n")
def tls_version_refused(lab: Lab) -> Truth:
    client = lab.raw(PUMP, lab.target(highest=ssl.TLSVersion.TLSv1_2))
    with suppress(OSError):
        client.connect()
        raise NotPlantedError("connected")
    return Truth.end(ANY, Cause.TLS_FAILURE)


@fault(needs_wire=True, recorded_at=(SERVER,), transports=(PLAIN, WEBSOCKET))
def power_lost(lab: Lab) -> Truth:
    """The client loses its state and comes back, from the port that it had or from another one."""
    same = lab.chance.random() < 0.5
    client = lab.connected(PUMP)
    assert client.stream is not None
    client.publish("plant/1", b"21.5")
    time.sleep(0.3)
    port = client.stream.port
    lab.wire.cut()
    client.stream.abort()
    time.sleep(0.5)
    lab.wire.mend()
    back = lab.raw(PUMP, source_port=port if same else 0)
    lab.need(back.connect() == 0, "refused")
    if same:
        return Truth.end(PUMP, Cause.DEVICE_RESTART, also=(Cause.HALF_OPEN, Cause.TAKEN_OVER))
    return Truth.end(PUMP, Cause.TAKEN_OVER, Cause.HALF_OPEN, Cause.DEVICE_RESTART)


@fault(versions=("5.0",), clients=(RAW,), damages=(LATE, SHORT, CLOCK))
def disconnect_with_will(lab: Lab) -> Truth:
    """The client leaves and wants its will published."""
    client = lab.connected(PUMP, will="wills/pump-1")
    time.sleep(0.2)
    client.send(Disconnect(reason_code=4))
    client.kill()
    return Truth.end(PUMP, Cause.CLIENT_DISCONNECT, Cause.NORMAL)


@fault(clients=(RAW,))
def client_resets(lab: Lab) -> Truth:
    client = lab.connected(PUMP)
    client.publish("plant/1", b"21.5")
    time.sleep(0.2)
    assert client.stream is not None
    client.stream.abort()
    return Truth.end(PUMP, Cause.CLIENT_RESET)


@fault(config=DYNAMIC_SECURITY, files=dynamic_security(), versions=("5.0",))
def kicked(lab: Lab) -> Truth:
    """The administrator disables the client."""
    client = lab.connected(PUMP, user="pump", password="secret")
    admin = lab.connected("admin", user="admin", password="secret")
    time.sleep(0.2)
    admin.publish("$CONTROL/dynamic-security/v1", b'{"commands":[{"command":"disableClient","username":"pump"}]}', 1)
    closed(lab, client)
    return Truth.end(PUMP, Cause.ADMINISTRATIVE_ACTION)
