from collections.abc import Iterator

from mqttscope.lint.examples import examples
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Findings, Needs, Report, Rule, RuleContext, Severity
from mqttscope.lint.session_model import ENDLESS, SessionModel, doubted
from mqttscope.mqtt import Connack, ControlPacket, Direction, Pubcomp, Unsuback
from mqttscope.session.inflight import RECEIVED

_NOT_FOUND = 0x92
_NONE_EXISTED = 0x11


class SessionLost(Rule):
    """A server has lost a session, or a part of it, before its time.

    Messages that were stored for the client are gone, and so are its subscriptions, which a client that relies on
    Session Present does not make again.  Told by CONNACK it is a warning, since a restart or an operator may have ended
    the session, and an error where the server has just taken the session from another connection.  It is an error as
    well where CONNACK says that the session continues and the server then does not know a subscription it had granted
    or a QoS 2 message it had received.

    Instead, store the state of sessions for as long as their interval says, and answer Session Present 1 only for a
    session that is still whole.
    """

    code = "SES304"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {
        V5: {"MQTT-3.1.2-5": "", "MQTT-3.1.2-23": ""},
        V3_1_1: {"MQTT-3.1.2-4": "", "MQTT-3.2.2-2": "", "MQTT-4.1.0-1": ""},
    }
    also = {V5: ("MQTT-3.1.2-6", "MQTT-3.1.3-7", "MQTT-3.1.4-4"), V3_1_1: ("MQTT-3.1.4-3",)}
    looks_at = (Connack, Unsuback, Pubcomp)
    when = {Pubcomp: "reason_code"}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE
    models = (SessionModel,)

    good = examples("""
        back in time
            opened resume session_expiry_interval=3600; > disconnect; > fin; +60 > nothing
            @1 opened resume session_expiry_interval=3600 < present
        back too late
            opened resume session_expiry_interval=3600; > disconnect; > fin; +7200 > nothing
            @1 opened resume session_expiry_interval=3600
        the session was not to be kept
            opened; > disconnect; > fin; @1 opened resume
        the client has ended it
            opened resume session_expiry_interval=3600; > disconnect code=0 session_expiry_interval=0; > fin
            +5 > nothing; @1 opened resume session_expiry_interval=3600
        the end of the connection before was not captured, and the session may have run out
            opened resume session_expiry_interval=300; > pingreq; < pingresp
            +301 @1 opened resume session_expiry_interval=300
        what a DISCONNECT said is lost
            opened resume session_expiry_interval=3600; lost > disconnect code=0 session_expiry_interval=0; > fin
            +5 > nothing; @1 opened resume session_expiry_interval=3600
        another user's client of the same name
            opened resume user_name=alice session_expiry_interval=3600; > disconnect; > fin
            @1 opened resume user_name=bob session_expiry_interval=3600
        an UNSUBSCRIBE ended it on the connection before
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > unsubscribe 2 a
            < unsuback 2 0; > disconnect; > fin; @1 opened resume session_expiry_interval=3600 < present
            @1 > unsubscribe 2 a; @1 < unsuback 2 0x11
        an UNSUBSCRIBE whose answer never came
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > unsubscribe 2 a; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > unsubscribe 2 a; @1 < unsuback 2 0x11
        the PUBCOMP to the first PUBREL may not have arrived
            opened resume session_expiry_interval=3600; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > pubrel 7; @1 < pubcomp 7 code=0x92
    """)
    bad = examples("""
        Session Present 0
            opened resume session_expiry_interval=3600; > disconnect; > fin; +60 > nothing
            @1 opened resume session_expiry_interval=3600 < !session_present
        CleanSession 0 in 3.1.1
            opened 3.1.1 resume; > disconnect; > fin; @1 opened resume < !session_present
        lost while it was taken over
            opened resume session_expiry_interval=3600; @1 > connect resume session_expiry_interval=3600
            < disconnect code=0x8e; @1 < connack !session_present; < fin
        lost while the connection before was open: only a warning
            opened resume session_expiry_interval=300; > pingreq; < pingresp
            +299 @1 opened resume session_expiry_interval=300 < !session_present; < disconnect code=0x8e; < fin
        the same in 3.1.1
            opened 3.1.1 resume; @1 opened resume < !session_present; < fin
        a subscription is gone
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > unsubscribe 2 a
            @1 < unsuback 2 0x11 !reason_codes[0]
        a QoS 2 message is gone
            opened resume session_expiry_interval=3600; > publish a qos=2 id=7; < pubrec 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > pubrel 7
            @1 < pubcomp 7 code=0x92 !reason_code
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare what the server says with what it had."""
        if isinstance(packet, Connack):
            return self._connack(packet, at)
        if isinstance(packet, Unsuback):
            return self._unsuback(packet, at)
        assert isinstance(packet, Pubcomp)
        if packet.reason_code != _NOT_FOUND or not at.history.carries:
            return None
        model = at.model(SessionModel)
        one = model.carried(at.direction.opposite, at).get(packet.packet_identifier)
        if not self._continues(model, at) or one is None or not one.sure or one.answered or one.phase is not RECEIVED:
            return None
        if at.other.has_sent(packet.packet_identifier):
            return None
        return self.report(
            "reason_code",
            f"CONNACK said that the session of {at.client_name!r} continues, but the server does not know the QoS 2 "
            f"message {one.packet_identifier} that it had answered with PUBREC",
            related=(one.related,),
            **doubted(apart=model.apart),
        )

    @staticmethod
    def _continues(model: SessionModel, at: RuleContext) -> bool:
        return model.owner == at.key and model.resumed is True

    def _connack(self, packet: Connack, at: RuleContext) -> Findings:
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or at.history.connack is not None or packet.session_present is not False:
            return None
        if connect is None or sent is None or connect.clean_start or not connect.client_identifier:
            return None
        model = at.model(SessionModel)
        if not model.is_of(connect) or at.timestamp_ns < model.ended_ns:
            return None
        related = () if model.connack is None else (model.connack,)
        told = f"session of {at.client_name!r} should have lasted"
        if model.live:
            if not model.lasting:
                return None
            if not sent.timestamp_ns <= model.told_ns <= at.timestamp_ns:
                return self._open_before(model, f"{told}, since its connection before was still open", at)
            return self.report(
                "session_present",
                f"{told}, since it was taken over from an open connection, but CONNACK says Session Present 0",
                related=related,
                **doubted(apart=at.is_apart(model.capture)),
            )
        until = model.kept_until()
        if until is None or not model.kept_seconds or at.timestamp_ns + until[1] >= until[0]:
            return None
        left = (until[0] - at.timestamp_ns) / SECOND_NS
        how_long = "forever" if model.kept_seconds == ENDLESS else f"{left:,.0f} s more"
        return self.report(
            "session_present",
            f"{told} {how_long}, but CONNACK says Session Present 0",
            severity=Severity.WARNING,
            confidence=Confidence.HEURISTIC,
            related=related,
        )

    def _open_before(self, model: SessionModel, told: str, at: RuleContext) -> Findings:
        """Whether the session cannot have run out since the server was last heard on the connection before."""
        before = None if model.owner is None else at.connection_of(model.owner)
        heard_ns = None if before is None else before.server_side.last_timestamp_ns
        if before is None or heard_ns is None or at.is_apart(model.capture):
            return None
        seconds = ENDLESS if before.version is not V5 else before.session_expiry_interval or 0
        if seconds != ENDLESS and at.timestamp_ns >= heard_ns + seconds * SECOND_NS:
            return None
        return self.report(
            "session_present",
            f"{told}, but CONNACK says Session Present 0",
            severity=Severity.WARNING,
            confidence=Confidence.HEURISTIC,
            related=() if model.connack is None else (model.connack,),
        )

    def _unsuback(self, packet: Unsuback, at: RuleContext) -> Iterator[Report]:
        if _NONE_EXISTED not in (packet.reason_codes or ()):
            return
        model = at.model(SessionModel)
        request = at.history.subscriptions.request_for(packet.packet_identifier, "unsubscribe")
        codes = packet.reason_codes or ()
        if not self._continues(model, at) or request is None or request.answers:
            return
        if len(codes) != len(request.topic_filters):
            return
        for index, (code, name, known) in enumerate(zip(codes, request.topic_filters, request.existing, strict=True)):
            if code == _NONE_EXISTED and known < 0 and name in model.filters:
                yield self.report(
                    f"reason_codes[{index}]",
                    f"CONNACK said that the session of {at.client_name!r} continues, but its subscription {name!r}, "
                    f"granted with QoS {model.filters[name].granted}, does not exist any more",
                    **doubted(apart=model.apart),
                )
