"""Clients that get another Assigned Client Identifier with each connection, and so lose the session they asked to keep.

A CONNECT without a Client Identifier begins a new session (5.0 3.1.3.1): only a CONNECT with the Assigned Client
Identifier of the CONNACK resumes it.  Connections are most probably of one client if host, user name and password, will
topic and subscriptions are equal, and if no two of them were open at the same time.  Users with other credentials are
other clients.  A later CONNECT with one of the assigned identifiers shows a client that resumes its session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.explain import describe
from mqttscope.explain.story import Story
from mqttscope.session.connection import host_of

MAX_CLIENTS = 1_000
"""Maximum number of clients without an identifier of their own that are followed, the latest ones."""
MAX_NAMED = 3
"""Maximum number of assigned identifiers that are named of a client."""
LEAST_SESSIONS = 2
"""Minimum number of sessions that a client began."""
Likeness = tuple[str, str, int, str | None, int]
"""Hosts of server and client, hash of the credentials, will topic, and hash of the subscriptions."""


@dataclass(slots=True)
class AssignedSessions:
    """Sessions that one client most probably began."""

    names: list[str] = field(default_factory=list)
    """First assigned identifiers, as they may be shown."""
    count: int = 0
    last_ns: int = 0
    """End of the last connection."""
    is_ambiguous: bool = False
    """Whether two clients are alike, or the client resumed a session."""


class AssignedIdentifiers:
    """Takes connections as they end."""

    def __init__(self) -> None:
        self._clients: OrderedDict[Likeness, AssignedSessions] = OrderedDict()
        self._owners: OrderedDict[tuple[str, str], Likeness] = OrderedDict()
        """Clients by host of the server and assigned identifier."""

    def note(self, story: Story) -> None:
        """Take a connection that has ended, or is open at the end of the capture."""
        connection, sent = story.connection, story.login.client_identifier
        server, assigned = host_of(connection.server), connection.client_identifier
        if story.connect is None or story.connack is None or story.connack.code:
            return
        if sent:
            owner = self._owners.get((server, sent))
            if owner is not None and owner in self._clients:
                self._clients[owner].is_ambiguous = True
            return
        subscriptions = story.likenesses.get("subscriptions")
        if not assigned or subscriptions is None or not connection.keeps_session:
            return
        host = host_of(connection.client)
        likeness = server, host, story.login.credentials, story.will_topic, subscriptions
        client = self._clients.setdefault(likeness, AssignedSessions())
        self._clients.move_to_end(likeness)
        self._owners[server, assigned] = likeness
        client.is_ambiguous = client.is_ambiguous or connection.opened_ns < client.last_ns
        client.last_ns = max(client.last_ns, story.ended_ns)
        client.count += 1
        if len(client.names) < MAX_NAMED:
            client.names.append(describe.name(assigned))
        for table in (self._clients, self._owners):
            if len(table) > MAX_CLIENTS:
                table.popitem(last=False)

    def sentences(self) -> Iterator[str]:
        """A sentence for each such client."""
        for (_, host, *_), client in self._clients.items():
            if client.count < LEAST_SESSIONS or client.is_ambiguous:
                continue
            names = ", ".join(client.names) + (", …" if client.count > len(client.names) else "")
            yield (
                f"likely: {host} connected {client.count:,} times without a Client Identifier, asked the broker to keep"
                f" its session, and was assigned another identifier each time ({names}): each connection began a new"
                " session, without the messages that waited in the one before. Let the client connect with the Assigned"
                " Client Identifier, or with an identifier of its own."
            )
