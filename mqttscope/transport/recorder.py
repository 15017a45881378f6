"""The record of links: what an endpoint of ours sends and gets, told to a `Recording` as a capture would show it."""

from __future__ import annotations

from mqttscope.transport.delivery import Delivery, Rounds
from mqttscope.transport.recording import Recording
from mqttscope.transport.wire import Endpoint


class Recorder:
    """Records the links of one event loop.

    Frames hold the bytes as they are inside TLS: MQTT, or the handshake and the frames of a WebSocket.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.rounds = Rounds()
        recording.start()

    def tap(self, local: Endpoint, remote: Endpoint, delivery: Delivery, *, is_client: bool) -> Tap:
        """A link that was just made; ``is_client``: by us."""
        return Tap(self, local, remote, delivery, is_client=is_client)

    def close(self) -> None:
        """Finish the record; what happens to links from now on is no part of it."""
        self.rounds.close()
        self.recording.close()


class Tap:
    """The record of one link.  Every method but `acknowledge` is to be called before what it tells of goes on."""

    def __init__(
        self, recorder: Recorder, local: Endpoint, remote: Endpoint, delivery: Delivery, *, is_client: bool
    ) -> None:
        ends = (local, remote) if is_client else (remote, local)
        self.wire = recorder.recording.wire(*ends)
        self._recording = recorder.recording
        self._rounds = recorder.rounds
        self._delivery = delivery
        self._is_client = is_client
        self._received = 0
        """How far we have the remote's stream, its FIN counted as one byte."""
        self._gone = False
        self._recording.take(self.wire.open(self._recording.now()))

    def sent(self, data: bytes) -> None:
        """We send something."""
        recording = self._recording
        recording.take(self.wire.data(self._is_client, data, recording.now(), self._received))
        self._delivery.writing(len(data))
        self._rounds.note(self)

    def received(self, data: bytes) -> None:
        """The remote sent something."""
        recording = self._recording
        recording.take(self.wire.data(not self._is_client, data, recording.now(), self._delivery.read()))
        self._received += len(data)
        self._rounds.note(self)

    def finished(self, *, local: bool) -> None:
        """One side has nothing more to say: FIN."""
        recording = self._recording
        known = self._received if local else self._delivery.known()
        recording.take(self.wire.close(self._is_client is local, recording.now(), known))
        if not local:
            self._received = self.wire.sent(not self._is_client) + 1
            self._rounds.note(self)

    def aborted(self, *, local: bool) -> None:
        """One side has given the connection up: RST."""
        self._recording.take(self.wire.abort(self._is_client is local, self._recording.now()))

    def gone(self) -> None:
        """The socket is closed."""
        self._gone = True
        self._rounds.forget(self)
        if self.wire.ended:
            self._recording.take(self.wire.settle(self._recording.now()))

    def acknowledge(self) -> bool:
        """Record what has arrived meanwhile; returns whether something is still under way."""
        if self._gone:
            return False
        wire, now = self.wire, self._recording.now()
        self._recording.take(wire.acknowledge(self._is_client, self._received, now))
        self._recording.take(wire.acknowledge(not self._is_client, self._delivery.known(), now))
        return wire.acknowledged(not self._is_client) < wire.sent(self._is_client)
