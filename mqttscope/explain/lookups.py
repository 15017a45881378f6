"""Names that clients could not resolve (RFC 1035): why they made no connection.

A lookup failed if DNS answered with an error, or with no address, or not at all, twice or more.  A lookup that an
address answers later has succeeded, also one for the same host in another domain: resolvers try several.

Other programs of a host look up names, too.  So a failure matters only in two cases.  Either the name is the one of a
server of MQTT in the capture, and its client began no TCP connection afterwards, while no older one stayed open.  Or
the client made no connection at all and resolved no name: likely if the name is like the one of a broker, otherwise a
hypothesis.  Names that systems look for by themselves do not count.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from mqttscope.explain import describe
from mqttscope.explain.model import Certainty, UnresolvedName
from mqttscope.mqtt.wire import counted
from mqttscope.net.host_names import AAAA, A, answers, read_question
from mqttscope.net.segment import DnsMessage

MAX_LOOKUPS = 1_000
"""Maximum number of failed lookups that are remembered, the latest ones."""
OUTAGE_NS = 5_000_000_000
"""Minimum time without an answer, and from the first failure of a lookup to its success, that is reported."""
NO_ADDRESS = -1
_CODES = {
    NO_ADDRESS: "no address", 1: "FORMERR", 2: "SERVFAIL (the DNS server failed)",
    3: "NXDOMAIN (the name does not exist)", 4: "NOTIMP", 5: "REFUSED (the DNS server refused)",
}  # fmt: skip
_OF_SYSTEMS = frozenset(("wpad", "isatap", "localhost"))
"""Host names that systems look for by themselves."""
_OF_BROKERS = re.compile("mqtt|broker|iot|mosquitto|emqx|hivemq|vernemq|rabbit", re.IGNORECASE)
"""Parts of names that brokers usually have."""
_OF_NAME = "Check the name of the broker in the client, and whether its DNS server has an address for it."
_OF_SERVER = "Check the DNS server that the client uses, and its way to the internet."


@dataclass(slots=True)
class Lookup:
    """A name that a client asked for and did not get an address of."""

    name: str
    first: DnsMessage
    queries: Counter[int] = field(default_factory=Counter)
    """Number of queries by the type of record."""
    failures: dict[int, DnsMessage] = field(default_factory=dict)
    """The first response with each Response Code, or with `NO_ADDRESS`."""
    resolved_ns: int = 0
    """When it succeeded; 0 if it did not."""

    @property
    def text(self) -> str:
        """Queries and responses of the capture."""
        queries = counted(max(self.queries.values(), default=0), "time")
        asked = f"it asked {queries} (first in frame {self.first.frame:,}), and "
        if not self.failures:
            return f"{asked}no answer of a DNS server was captured"
        codes = [f"{_CODES.get(code, f'code {code}')} in frame {row.frame:,}" for code, row in self.failures.items()]
        return f"{asked if self.queries else ''}DNS answered {describe.listed(codes)}"


class LookupWatch:
    """Feed it DNS messages and the first segments of connections, then call `unresolved`."""

    def __init__(self) -> None:
        self.lookups: OrderedDict[tuple[bytes, str], Lookup] = OrderedDict()
        self.resolved: OrderedDict[tuple[bytes, str], int] = OrderedDict()
        """Type of the record that had an address, by client and name: a name may have addresses of one type only."""
        self.servers: set[bytes] = set()
        """DNS servers, which ask other servers for what their clients ask them."""
        self.outages: list[Lookup] = []
        """Lookups that succeeded after a while."""
        self.connected: dict[bytes, int] = {}
        """When clients began their last TCP connection; not all of them if there are `MAX_LOOKUPS`."""
        self.now_ns = 0
        self.dropped = 0

    def feed(self, message: DnsMessage) -> None:
        """Take a query or a response for an address."""
        asked = read_question(message.data)
        self.now_ns = max(self.now_ns, message.timestamp_ns)
        if asked is None or asked.kind not in (A, AAAA):
            return
        key = message.client, asked.name
        if len(self.servers) < MAX_LOOKUPS:
            self.servers.add(message.server)
        if asked.is_response and next(answers(message.data), None) is not None:
            self.resolved[key] = asked.kind
            if len(self.resolved) > MAX_LOOKUPS:
                self.resolved.popitem(last=False)
            lookup = self.lookups.pop(key, None)
            if lookup is not None and message.timestamp_ns - lookup.first.timestamp_ns >= OUTAGE_NS:
                lookup.resolved_ns = message.timestamp_ns
                self.outages.append(lookup)
                del self.outages[:-MAX_LOOKUPS]
            return
        code = asked.code or NO_ADDRESS
        usual = self.resolved.get(key, A if asked.is_response and code == NO_ADDRESS else asked.kind)
        if asked.kind != usual:
            return
        lookup = self.lookups.setdefault(key, Lookup(asked.name, message))
        self.lookups.move_to_end(key)
        if asked.is_response:
            lookup.failures.setdefault(code, message)
        else:
            lookup.queries[asked.kind] += 1
        if len(self.lookups) > MAX_LOOKUPS:
            self.lookups.popitem(last=False)
            self.dropped += 1

    @property
    def limits(self) -> list[str]:
        """A sentence about lookups that were forgotten."""
        text = f"limit: {MAX_LOOKUPS:,} failed lookups of names are remembered; forgotten: {self.dropped:,}."
        return [text] if self.dropped else []

    def connect(self, client: bytes, now_ns: int) -> None:
        """Note that a client begins a TCP connection."""
        if client in self.connected or len(self.connected) < MAX_LOOKUPS:
            self.connected[client] = now_ns


def unresolved(
    watch: LookupWatch, servers: Iterable[str], hosts: Container[str], still_open: Container[str], now_ns: int
) -> Iterator[UnresolvedName]:
    """The clients that failed to resolve names.

    ``servers``: host names of servers of MQTT; ``hosts``: addresses of servers and their clients; ``still_open``:
    addresses of clients with a connection that was open at the end.
    """
    known = {name.lower() for name in servers}
    now_ns, clients = max(now_ns, watch.now_ns), dict[bytes, list[Lookup]]()
    resolved: dict[bytes, set[str]] = {}
    for client, name in watch.resolved:
        resolved.setdefault(client, set()).add(name.partition(".")[0])

    def is_without(lookup: Lookup) -> bool:
        """Whether the client made no connection, and resolved no name."""
        client, name = lookup.first.client, lookup.name
        is_alone = client not in watch.connected and len(watch.connected) < MAX_LOOKUPS
        is_own = name.partition(".")[0] not in _OF_SYSTEMS and name.rpartition(".")[2] not in ("local", "arpa")
        return is_alone and is_own and client not in resolved and str(ip_address(client)) not in hosts

    def is_lost(lookup: Lookup) -> bool:
        """Whether the client could not connect to this server again."""
        client, name = lookup.first.client, lookup.name
        is_back = watch.connected.get(client, 0) >= lookup.first.timestamp_ns or str(ip_address(client)) in still_open
        return name in known and not is_back and name.partition(".")[0] not in resolved.get(client, ())

    for lookup in watch.outages:
        if lookup.name in known and str(ip_address(lookup.first.client)) not in still_open:
            clients.setdefault(lookup.first.client, []).append(lookup)
    for lookup in watch.lookups.values():
        is_repeated = max(lookup.queries.values(), default=0) > 1
        is_over = lookup.failures or (is_repeated and now_ns - lookup.first.timestamp_ns >= OUTAGE_NS)
        if is_over and (is_lost(lookup) or is_without(lookup)):
            clients.setdefault(lookup.first.client, []).append(lookup)
    clients = {client: lookups for client, lookups in clients.items() if client not in watch.servers}
    for client, lookups in clients.items():
        first = lookups[0]
        host, name = ip_address(client), describe.name(first.name)
        if first.resolved_ns:
            lasted = describe.span(first.resolved_ns - first.first.timestamp_ns)
            text = f"certain: {host} could not resolve {name}, the name of a broker, for {lasted}"
        elif not is_without(first):
            text = f"certain: {host} could not resolve {name}, the name of a broker"
        else:
            certainty = Certainty.LIKELY if _OF_BROKERS.search(first.name) else Certainty.HYPOTHESIS
            text = f"{certainty}: {host} made no connection because it could not resolve {name}"
        advice = _OF_NAME if {3, NO_ADDRESS} & first.failures.keys() else _OF_SERVER
        more = f"; {counted(len(lookups) - 1, 'other failed lookup')}" if len(lookups) > 1 else ""
        yield UnresolvedName(str(host), first.first.timestamp_ns, f"{text}: {first.text}{more}", advice)
