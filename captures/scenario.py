"""What a recorded scenario is and where the scripts register themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rig import Rig

Run = Callable[[Rig], None]


@dataclass(slots=True)
class Scenario:
    """One recording: the text for `about.toml`, the broker it needs, and the conversation."""

    name: str
    title: str
    shows: str
    run: Run
    config: str = ""
    """Lines for mosquitto.conf behind `listener`; `{folder}` is the temporary folder, `{spare}` a free port."""
    prepare: Run | None = None
    """Writes files that the configuration names."""
    port: int = 1883
    host: str = "127.0.0.1"
    transport: str = "tcp"
    versions: list[str] | None = None
    """Where tshark cannot tell them."""
    clients: tuple[str, ...] = ("paho-mqtt",)
    malformed: int = 0
    topics: list[str] | None = None
    notes: str = ""
    explain: Mapping[int, str] = field(default_factory=dict)
    broker: str = "mosquitto"
    """Another one of `servers`, which takes no configuration."""
    running: str = ""
    """Another broker that whoever records has started, with its version."""
    proxy: bool = False
    """Whether clients reach the broker by a proxy (`rig.proxy`) that can make it misbehave."""
    fires: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Rules that have to find something; whom they blame, ``client`` or ``server``, and what provokes them."""
    settings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Settings of these rules that are not the usual ones."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Other rules that find errors, and why that cannot be otherwise."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    name: str,
    title: str,
    shows: str,
    *,
    config: str = "",
    prepare: Run | None = None,
    port: int = 1883,
    host: str = "127.0.0.1",
    transport: str = "tcp",
    versions: list[str] | None = None,
    clients: tuple[str, ...] = ("paho-mqtt",),
    malformed: int = 0,
    topics: list[str] | None = None,
    notes: str = "",
    explain: Mapping[int, str] | None = None,
    broker: str = "mosquitto",
    running: str = "",
    proxy: bool = False,
    fires: Mapping[str, tuple[str, str]] | None = None,
    settings: Mapping[str, Mapping[str, int]] | None = None,
    beside: Mapping[str, str] | None = None,
) -> Callable[[Run], Run]:
    """Register a function as a scenario; the arguments are the fields of `Scenario`."""

    def register(run: Run) -> Run:
        SCENARIOS[name] = Scenario(
            name=name,
            title=title,
            shows=shows,
            run=run,
            config=config,
            prepare=prepare,
            port=port,
            host=host,
            transport=transport,
            versions=versions,
            clients=clients,
            malformed=malformed,
            topics=topics,
            notes=notes,
            explain=explain or {},
            broker=broker,
            running=running,
            proxy=proxy,
            fires=fires or {},
            settings=settings or {},
            beside=beside or {},
        )
        return run

    return register
