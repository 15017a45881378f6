"""Recordings of public implementations of Sparkplug B.

Node has to find `sparkplug-client` (NODE_PATH).  `pysparkplug` needs an older paho-mqtt than the other recordings:
SPARKPLUG_PYTHON is a Python that has both.
"""

from __future__ import annotations

import time

import mqttbytes as mb
import servers
from actors import Actor, leave, pause
from rig import Rig
from scenario import scenario

JAVASCRIPT = """\
const spark = require('sparkplug-client')
const now = () => Date.now()
const metric = (name, type, value) => ({ name, type, value, timestamp: now() })
const node = spark.newClient({ serverUrl: 'mqtt://HOST:PORT', username: '', password: '', groupId: 'plant',
  edgeNode: 'press', clientId: 'press', version: 'spBv1.0', publishDeath: true, keepalive: 30 })
const birth = () => {
  node.publishNodeBirth({ timestamp: now(), metrics: [
    metric('Node Control/Rebirth', 'Boolean', false), metric('Temperature', 'Double', 21.5) ] })
  node.publishDeviceBirth('motor', { timestamp: now(), metrics: [
    metric('Speed', 'Int32', -1450), metric('Serial', 'String', 'M-7') ] })
}
node.on('birth', birth)
node.on('ncmd', birth)
const speed = options => value =>
  node.publishDeviceData('motor', { timestamp: now(), metrics: [metric('Speed', 'Int32', value)] }, options)
const host = require('mqtt').connect('mqtt://HOST:PORT', { clientId: 'host' })
setTimeout(() => node.publishNodeData({ timestamp: now(), metrics: [metric('Temperature', 'Double', 22)] }), 600)
setTimeout(() => speed({ compress: true })(-1400), 800)
setTimeout(() => speed({ compress: true })(-1390), 900)
setTimeout(() => speed({ compress: true, algorithm: 'GZIP' })(-1380), 1000)
setTimeout(() => host.publish('spBv1.0/plant/NCMD/press', require('sparkplug-payload').get('spBv1.0').encodePayload({
  timestamp: now(), metrics: [{ name: 'Node Control/Rebirth', type: 'Boolean', value: true }] })), 1200)
setTimeout(() => speed({})(-1370), 1600)
setTimeout(() => node.publishDeviceDeath('motor', { timestamp: now() }), 1800)
setTimeout(() => { node.stop(); host.end() }, 2000)
"""
PYTHON = """\
import time
from pysparkplug import Client, DataType, Device, EdgeNode, Metric, get_current_timestamp

def metric(name, datatype, value):
    return Metric(timestamp=get_current_timestamp(), name=name, datatype=datatype, value=value)

node = EdgeNode("plant", "oven", [metric("Temperature", DataType.DOUBLE, 180.5), metric("Steps", DataType.INT64, -3),
                metric("Node Control/Rebirth", DataType.BOOLEAN, False)], client=Client("oven"))
node.register(Device("fan", [metric("Speed", DataType.INT16, -900), metric("On", DataType.BOOLEAN, True)]))
for step in range(2):
    node.connect("HOST", port=PORT)
    time.sleep(0.6)
    node.update([metric("Temperature", DataType.DOUBLE, 181.5 + step)])
    node.update_device("fan", [metric("Speed", DataType.INT16, -880)])
    node.update_device("fan", [metric("On", DataType.BOOLEAN, False)])
    time.sleep(0.3)
    if step:
        node.deregister("fan")
    node.disconnect()
    time.sleep(0.3)
"""


def script(text: str, rig: Rig) -> str:
    """A script with the address of the broker."""
    return text.replace("HOST", rig.host).replace("PORT", str(rig.port))


@scenario(
    "sparkplug-javascript",
    "An edge node with the JavaScript library sparkplug-client",
    "Births of node and device, data in the clear and compressed with DEFLATE and GZIP, a rebirth that a host asks "
    "for, deaths of device and node.",
    clients=("sparkplug-client",),
    fires={
        "SPB109": ("client", "the library registers its NDEATH with QoS 0"),
        "SPB136": ("client", "the library adds bdSeq to the NBIRTH without a timestamp"),
        "SPB225": ("client", "the library subscribes to NCMD with QoS 0"),
    },
)
def sparkplug_javascript(rig: Rig) -> None:
    """Two seconds."""
    rig.run("node", "-e", script(JAVASCRIPT, rig))


@scenario(
    "sparkplug-python",
    "An edge node with the Python library pysparkplug",
    "Two connections with births of node and device, data, and at the end the death of the device.",
    clients=("pysparkplug",),
    fires={
        "SPB109": ("client", "the library registers its NDEATH with QoS 0"),
        "SPB266": ("client", "the NDEATH before a DISCONNECT has the bdSeq of the next connection"),
    },
)
def sparkplug_python(rig: Rig) -> None:
    """Three seconds."""
    rig.run(servers.SPARKPLUG_PYTHON, "-c", script(PYTHON, rig))


INT32, INT64, BOOLEAN = 3, 4, 11
"""Data types."""
REBIRTH = "Node Control/Rebirth"
NBIRTH, NDATA, NCMD = (f"spBv1.0/plant/{kind}/valve" for kind in ("NBIRTH", "NDATA", "NCMD"))
STATE = "spBv1.0/STATE/room"


def number(field: int, value: int) -> bytes:
    """A number of Protocol Buffers."""
    out = bytes([field << 3])
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def held(field: int, content: bytes) -> bytes:
    """Bytes, a text or a message of Protocol Buffers."""
    return bytes([field << 3 | 2]) + mb.varint(len(content)) + content


def metric(name: str, value: int, datatype: int) -> bytes:
    """A metric of Sparkplug B with its data type; 0 for data, which has none."""
    kind = number(4, datatype) if datatype else b""
    field = {INT64: 11, BOOLEAN: 14}.get(datatype, 14 if name == REBIRTH else 10)
    return held(2, held(1, name.encode()) + number(3, time.time_ns() // 1_000_000) + kind + number(field, value))


def payload(*metrics: bytes, seq: int | None = None) -> bytes:
    """A payload of Sparkplug B."""
    return number(1, time.time_ns() // 1_000_000) + b"".join(metrics) + (b"" if seq is None else number(3, seq))


def edge(rig: Rig, bdseq: int, client: str = "valve", name: str = "valve") -> Actor:
    """An edge node that has connected and subscribed."""
    will = mb.will(f"spBv1.0/plant/NDEATH/{name}", payload(metric("bdSeq", bdseq, INT64)))
    actor = Actor(rig, client, "3.1.1", will=will, will_flags=1 << 3)
    actor.subscribe((f"spBv1.0/plant/NCMD/{name}", 1))
    return actor


def birth(bdseq: int) -> bytes:
    """The payload of an NBIRTH with the metric Flow."""
    return payload(metric("bdSeq", bdseq, INT64), metric(REBIRTH, 0, BOOLEAN), metric("Flow", 40, INT32), seq=0)


@scenario(
    "sparkplug-deviations",
    "Deviations of an edge node and a host of Sparkplug B",
    "An edge node leaves out a sequence number and sends a metric without a birth. It does not answer a rebirth "
    "request, sends DISCONNECT without an NDEATH, and comes back with the same bdSeq and with data before its NBIRTH. "
    "A host does not answer when another client publishes that it is offline, and leaves without a death.",
    clients=("bare socket",),
    explain={2: "client_reset"},
    fires={
        "SPB265": ("client", "the edge node leaves out a sequence number"),
        "SPB267": ("client", "the edge node sends data before its NBIRTH"),
        "SPB269": ("client", "the edge node sends a metric that its NBIRTH does not have"),
        "SPB274": ("client", "the edge node sends DISCONNECT without an NDEATH"),
        "SPB275": ("client", "the edge node sends data after a rebirth request"),
        "SPB284": ("client", "the host sends DISCONNECT while its STATE is online"),
        "SPB377": ("client", "the edge node connects with the same bdSeq again"),
        "SPB576": ("client", "the edge node does not answer a rebirth request"),
        "SPB585": ("client", "the host does not answer when its STATE is offline"),
    },
    settings={"SPB576": {"timeout": 2}, "SPB585": {"timeout": 2}},
)
def sparkplug_deviations(rig: Rig) -> None:
    """Ten seconds."""
    now = time.time_ns() // 1_000_000
    states = [b'{"online":%s,"timestamp":%d}' % (online, now) for online in (b"false", b"true")]
    host = Actor(rig, "room", "3.1.1", will=mb.will(STATE, states[0]), will_flags=1 << 3 | 1 << 5)
    host.subscribe((STATE, 0), ("spBv1.0/plant/#", 0))
    host.publish(STATE, states[1], 1, 2, retain=True)
    host.take()
    node = edge(rig, 4)
    node.publish(NBIRTH, birth(4))
    node.publish(NDATA, payload(metric("Flow", 41, 0), seq=1))
    node.publish(NDATA, payload(metric("Flow", 42, 0), seq=3))
    node.publish(NDATA, payload(metric("Level", 7, 0), seq=4))
    host.take(4)
    host.publish(NCMD, payload(metric(REBIRTH, 1, 0)))
    node.take()
    host.take()
    pause(3, node)
    node.publish(NDATA, payload(metric("Flow", 43, 0), seq=5))
    host.take()
    node.leave()
    node = edge(rig, 4)
    node.publish(NDATA, payload(metric("Flow", 44, 0), seq=0))
    node.publish(NBIRTH, birth(4))
    host.take(2)
    rogue = Actor(rig, "rogue", "3.1.1")
    rogue.publish(STATE, states[0], 1, 1, retain=True)
    host.take()
    pause(3, host)
    node.vanish()
    host.take()
    leave([rogue, host])


@scenario(
    "sparkplug-shared-names",
    "Edge nodes of Sparkplug B with one name",
    "Two clients are born as the same edge node, and the first one still sends data. A third one is an edge node with "
    "the same name in another case.",
    clients=("bare socket",),
    fires={
        "SPB429": ("client", "two clients publish as the same edge node"),
        "SPB499": ("client", "the names of two edge nodes differ in their case"),
    },
)
def sparkplug_shared_names(rig: Rig) -> None:
    """One second."""
    nodes = [edge(rig, 0), edge(rig, 0, "twin"), edge(rig, 0, "other", "Valve")]
    for node, topic in zip(nodes, (NBIRTH, NBIRTH, NBIRTH.replace("valve", "Valve")), strict=True):
        node.publish(topic, birth(0))
        time.sleep(0.1)
    nodes[0].publish(NDATA, payload(metric("Flow", 41, 0), seq=1))
    time.sleep(0.1)
    for node, name in zip(nodes, ("valve", "valve", "Valve"), strict=True):
        node.publish(f"spBv1.0/plant/NDEATH/{name}", payload(metric("bdSeq", 0, INT64)))
        node.leave()
