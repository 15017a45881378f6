"""Brokers other than mosquitto, for recordings of what they do by themselves.

`amqtt` has to be on the path, and Node has to find `aedes` (NODE_PATH).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time

import mqttbytes as mb
from rig import START_SECONDS, Rig

AMQTT = """\
listeners:
  default:
    type: tcp
    bind: {host}:{port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""
AEDES = """\
const {{ Aedes }} = require('aedes')
Aedes.createBroker().then(broker => require('net').createServer(broker.handle).listen({port}, '{host}'))
"""
VERSION = """\
const at = require.resolve('NAME').replace(/(node_modules.NAME).*/, '$1/package.json')
console.log(require(at).version)
"""


SPARKPLUG_PYTHON = os.environ.get("SPARKPLUG_PYTHON", sys.executable)


def start(rig: Rig, name: str) -> str:
    """Start a broker by its name; returns that with its version, as `about.toml` states it."""
    if name == "amqtt":
        return _amqtt(rig)
    return _aedes(rig)


def _amqtt(rig: Rig) -> str:
    path = rig.folder / "amqtt.yaml"
    path.write_text(AMQTT.format(host=rig.host, port=rig.port))
    command = shutil.which("amqtt")
    if command is None:
        raise FileNotFoundError("amqtt: pip install amqtt")
    rig.start(command, "-c", str(path))
    _greet(rig)
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    return f"amqtt {shown.split()[-1]}"


def _aedes(rig: Rig) -> str:
    path = rig.folder / "aedes.js"
    path.write_text(AEDES.format(host=rig.host, port=rig.port))
    rig.start("node", str(path))
    _greet(rig)
    return f"Aedes {node_version('aedes')}"


def node_version(package: str) -> str:
    """The version of a package of Node."""
    command = ["node", "-e", VERSION.replace("NAME", package)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _greet(rig: Rig) -> None:
    """Wait until the broker accepts a client, and is done with it."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection((rig.host, rig.port), START_SECONDS) as probe:
                probe.sendall(mb.connect("probe") + mb.DISCONNECT)
                while probe.recv(4096):
                    pass
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def python_version(package: str) -> str:
    """The version of a package of `SPARKPLUG_PYTHON`."""
    command = [SPARKPLUG_PYTHON, "-c", f"from importlib import metadata; print(metadata.version('{package}'))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
