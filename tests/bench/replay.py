"""``replay`` as fast as it can beside paho-mqtt, a crowd at once, and how punctual a day in a minute and a half is."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.mqtt import Publish, encode
from mqttscope.replay.drivers.run import BrokerTarget, Pace, ReplayRunner
from mqttscope.replay.script import read_scripts
from mqttscope.system import allow_descriptors
from mqttscope.transport.target import parse_broker
from tests.bench import played, traffic
from tests.bench.printing import Out, heading, row, spread
from tests.cli.running import command, environment
from tests.proxy.rig import mosquitto

MESSAGES = 50_000
ROUNDS = 3
CROWD = 1_000
SENSORS = 10
SPEED = 1_000.0
TOPIC = "bench/replay"
QUIET_SECONDS = 20.0


def measure(out: Out, messages: int = MESSAGES, rounds: int = ROUNDS) -> bool:
    """All of it; whether everything came and the aims are met."""
    with tempfile.TemporaryDirectory(prefix="mqttscope-replay-") as name:
        folder = Path(name)
        met = throughput(out, folder, messages, rounds)
        met &= crowd(out, folder)
        return punctuality(out, folder) and met


def throughput(out: Out, folder: Path, messages: int, rounds: int) -> bool:
    """Messages per second as the broker passes them on, ours and paho's in turn."""
    heading(out, "QoS", "messages", "replay, messages/s", "paho-mqtt, messages/s", "replay to paho", texts=0)
    met = True
    with mosquitto(folder, traffic.BROKER, verbose=False) as broker:
        for qos in (0, 1):
            capture = folder / f"qos{qos}.pcapng"
            played.write(capture, [played.publisher(messages, qos, TOPIC)])
            ours, theirs = [], []
            for _ in range(rounds):
                words = command("replay", capture, "--broker", f"mqtt://127.0.0.1:{broker.port}", "--pace", "asap")
                ours.append(rate(broker.port, messages, words))
                theirs.append(rate(broker.port, messages, None, qos))
            ratio = statistics.median(our / other for our, other in zip(ours, theirs, strict=True))
            met = met and ratio >= 1
            medians = [f"{statistics.median(rates):,.0f}" for rates in (ours, theirs)]
            row(out, str(qos), f"{messages:,}", *medians, f"{ratio:.2f}")
    return met


def rate(port: int, messages: int, words: list[str | bytes] | None, qos: int = 0) -> float:
    """Messages per second between the first and the last that a subscriber gets; of paho-mqtt without ``words``."""
    length = len(encode(Publish(topic_name=TOPIC, payload=played.PAYLOAD), played.V3_1_1))
    with traffic.subscribed(port, TOPIC) as subscriber:
        subscriber.settimeout(QUIET_SECONDS)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            publishing = pool.submit(_run, words) if words else pool.submit(publish_with_paho, port, messages, qos)
            left, began = messages * length, 0.0
            while left:
                data = subscriber.recv(1 << 18)
                began = began or time.perf_counter()
                left -= len(data)
            took = time.perf_counter() - began
            publishing.result()
    return messages / took


def _run(words: list[str | bytes]) -> None:
    subprocess.run(words, env=environment(), check=True, capture_output=True)


def publish_with_paho(port: int, messages: int, qos: int) -> None:
    """As fast as paho-mqtt goes: its thread sends, its windows are as they come, and no queue is bounded."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, "paho")
    client.max_queued_messages_set(0)
    client.connect("127.0.0.1", port)
    client.loop_start()
    sent = [client.publish(TOPIC, played.PAYLOAD, qos) for _ in range(messages)]
    for info in sent:
        info.wait_for_publish()
    client.disconnect()
    client.loop_stop()


def crowd(out: Out, folder: Path, connections: int = CROWD) -> bool:
    """Many connections that are open at the same time."""
    capture = folder / "crowd.pcapng"
    played.write(capture, [played.member(number, connections) for number in range(connections)])
    replay, memory = _replayed(capture, Pace(None), folder)
    failed = sum(bool(driver.failure) for driver in replay.drivers)
    answered = sum(len(driver.player.live.script.entries) for driver in replay.drivers)
    out(f"\n{connections:,} connections at once: {answered:,} packets in {replay.seconds:.1f} s, {failed} failed, ")
    out(f"waited in vain {replay.context.gates.missed} times; {memory:.0f} MB at most.")
    return not failed and answered == 10 * connections and not replay.context.gates.missed


def punctuality(out: Out, folder: Path, speed: float = SPEED) -> bool:
    """A day of sparse traffic, much faster: how late each step is."""
    capture = folder / "day.pcapng"
    played.write(capture, [played.day(number) for number in range(SENSORS)])
    replay, _ = _replayed(capture, Pace(speed), folder)
    late = []
    for driver in replay.drivers:
        for entry in driver.player.live.script.entries:
            if entry.from_client and entry.source is not None:
                due = replay.context.timeline.due_ns(entry.source.timestamp_ns)
                late.append((due, (entry.timestamp_ns - replay.started_ns - due) / 1e6))
    last = max(late)[1]
    median, most, latest = spread([value for _, value in late])
    out(
        f"\n24 hours at {speed:g} times their speed: {len(late):,} steps in {replay.seconds:.1f} s; late by "
        f"{median:.2f} ms (median), {most:.2f} ms (99 %), {latest:.2f} ms (at most), {last:.2f} ms (the last one)."
    )
    return last < 50


def _replayed(capture: Path, pace: Pace, folder: Path) -> tuple[ReplayRunner, float]:
    scripts = read_scripts(dissect(open_capture([str(capture)])))
    allow_descriptors(len(scripts) + 64)
    with mosquitto(folder, traffic.BROKER, verbose=False) as broker:
        replay = ReplayRunner(scripts, BrokerTarget(parse_broker(f"mqtt://127.0.0.1:{broker.port}")), pace)
        asyncio.run(replay.run())
    return replay, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
