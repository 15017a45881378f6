"""What dumpcap complains about, told with its cause and its remedy."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Sequence

_FILTER = re.compile(r'Invalid capture filter "(?P<filter>.*?)" for interface .*?\n\s*(?P<why>[^\n]+)', re.S)
_WHY = re.compile(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_NAMED = re.compile(r'"([^"\n]+)"')


class CannotCaptureError(Exception):
    """Nothing can be captured; the text names the cause and the remedy."""


class BadCaptureFilterError(CannotCaptureError):
    """The capture filter is none."""


def explain(said: str, dumpcap: str, names: Sequence[str], *, code: int | None = None, fault: str | None = None) -> str:
    """One line for what dumpcap said: why it cannot capture (any more), and what helps.

    ``said``: its standard error; ``code``: its exit code; ``fault``: what was wrong with what it wrote.  Raises
    `BadCaptureFilterError` where the user's filter is at fault.
    """
    name = _interface(said, names)
    low = said.lower()
    bad = _FILTER.search(said)
    if bad:
        why = _WHY.search(bad["why"])
        raise BadCaptureFilterError(f"{bad['filter']!r} is no capture filter: {why[1] if why else bad['why']}")
    if "permission" in low or "not permitted" in low:
        return not_permitted(dumpcap, name)
    if "no device named" in low or "no such device" in low:
        return f"there is no interface {name}; mqttscope sniff --list-interfaces shows those there are"
    if "is not up" in low or "network is down" in low:
        return f"interface {name} is down; bring it up: ip link set {shlex.quote(name)} up"
    if "no longer" in low or "disappeared" in low:
        return went_away(name)
    told = " ".join(line.removeprefix("dumpcap: ").strip() for line in said.splitlines() if not _usual(line)).strip()
    if not told and code is not None and code < 0:
        told = f"was ended by {_signal(-code)}"
    if not told and fault is not None and code in (0, None):
        return f"dumpcap wrote what is no capture: it {fault}; {dumpcap} may not be Wireshark's dumpcap"
    if not told:
        told = "ended by itself" if not code else f"ended with exit code {code} and said nothing"
    return f"dumpcap: {told}" if told.startswith(("was ", "ended ")) else f"dumpcap says: {told}"


def went_away(name: str) -> str:
    """What to say of an interface that went down or was removed while it was captured from."""
    return (
        f"interface {name} went down or was removed, so that the capture ended; bring it up "
        f"(ip link set {shlex.quote(name)} up) and start again"
    )


def not_permitted(dumpcap: str, name: str) -> str:
    """What to say to a user who may not capture."""
    of = f" from {name}" if name else ""
    cause = f"no permission to capture{of}"
    if not os.access(dumpcap, os.X_OK):
        cause = f"no permission to run {dumpcap}, which captures{of}"
    return (
        f"{cause}. Debian: dpkg-reconfigure wireshark-common (answer yes), then usermod -aG wireshark $USER and log in"
        f" again. Elsewhere: setcap cap_net_raw,cap_net_admin=eip {shlex.quote(dumpcap)}. Or run it as root"
    )


def _interface(said: str, names: Sequence[str]) -> str:
    """The interface that a complaint is about."""
    named = [one for one in _NAMED.findall(said) if one in names]
    return named[0] if named else ", ".join(names)


def _usual(line: str) -> bool:
    return not line.strip() or line.startswith(("Capturing on", "File:", "Packets captured", "Packets received"))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
