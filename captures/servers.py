"""Brokers other than mosquitto, for recordings of what they do by themselves.

`amqtt` has to be on the path, and Node has to find `aedes` (NODE_PATH).
"""

from __future__ import annotations

import shutil
import subprocess

from rig import Rig

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
const at = require.resolve('aedes').replace(/(node_modules.aedes).*/, '$1/package.json')
console.log(require(at).version)
"""


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
    rig.await_broker()
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    return f"amqtt {shown.split()[-1]}"


def _aedes(rig: Rig) -> str:
    path = rig.folder / "aedes.js"
    path.write_text(AEDES.format(host=rig.host, port=rig.port))
    rig.start("node", str(path))
    rig.await_broker()
    shown = subprocess.run(["node", "-e", VERSION], capture_output=True, text=True, check=True).stdout
    return f"Aedes {shown.strip()}"
