"""The options that serve live metrics, and the server of a run with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.command import OUTPUT, option, options
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.installation import extra_command

if TYPE_CHECKING:
    from mqttscope.metrics.monitor import LiveMonitor

DEFAULT_HOST = "127.0.0.1"


@options
class MetricsOptions:
    """Where to serve live metrics."""

    serve: str | None = option(
        OUTPUT, "--serve", metavar="[ADDRESS:]PORT",
        help="Serve a live page and metrics for Prometheus (/metrics) over HTTP; port 0 is any free port.",
    )  # fmt: skip
    serve_to_network: bool = option(
        OUTPUT,
        "--serve-to-network",
        is_flag=True,
        help="Allow an ADDRESS that other hosts can reach; * is any address.",
    )

    def __post_init__(self) -> None:
        if self.serve is None:
            if self.serve_to_network:
                raise click.UsageError("--serve-to-network needs --serve")
            return
        host, _ = self.address()
        if not self.serve_to_network and not is_loopback(host):
            raise click.UsageError(
                f"--serve {self.serve}: other hosts could read the names of clients and topics at this address; add"
                " --serve-to-network to allow it"
            )

    def address(self) -> tuple[str, int]:
        """Host and port of ``--serve``; the host is empty for every address."""
        from mqttscope.transport.target import AddressError, parse_listen

        text = self.serve or ""
        with ErrorTranslation(click.UsageError, AddressError, before="--serve: "):
            return parse_listen(text if ":" in text else f"{DEFAULT_HOST}:{text}")

    @contextmanager
    def serving(self, monitor: LiveMonitor | None) -> Iterator[None]:
        """Serve the facts of a run while it lasts, if asked to; `CommandFailedError` if that is not possible."""
        if self.serve is None or monitor is None:
            yield
            return
        from mqttscope.cli.output import warn
        from mqttscope.transport.link import reason
        from mqttscope.transport.target import shown

        with ErrorTranslation(
            CommandFailedError, ImportError,
            text=lambda error: f"--serve needs a package that is not installed ({error}): {extra_command('metrics')}",
        ):  # fmt: skip
            from mqttscope.metrics.server import MetricsServer
        host, port = self.address()
        server = MetricsServer(monitor, host, warn)
        with ErrorTranslation(CommandFailedError, OSError, before=f"cannot serve on {self.serve}: ", text=reason):
            server.start(port)
        warn(f"metrics at http://{shown(*server.addresses[0])}/")
        try:
            yield
        finally:
            server.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name counts if all its addresses do."""
    import socket
    from ipaddress import ip_address

    try:
        addresses: Any = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ip_address(address[0].partition("%")[0]).is_loopback for *_, address in addresses)
