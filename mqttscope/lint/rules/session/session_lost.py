from collections.abc import Iterator

from mqttscope.lint.examples import examples
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Findings, Needs, Report, Rule, RuleContext, Severity
from mqttscope.lint.session_model import ENDLESS, SessionModel, doubted
from mqttscope.mqtt import Connack, ControlPacket, Direction, Pubcomp, Unsuback
from mqttscope.session.inflight import RECEIVED

_NOT_FOUND = 0x92
_NONE_EXISTED = 0x11


class SessionLost(Rule):
    """A server has lost a session, or part of it, before its expiry.

    Messages stored for the client are gone, and so are its subscriptions; a client that relies on Session Present does
    not repeat them.  If CONNACK reports the loss, it is a warning, since a restart or an operator may have ended the
    session.  It is an error if the server has just taken the session over from another connection.  It is also an error
    if CONNACK reports a continued session but the server has forgotten a granted subscription or a received QoS 2
    message.

    Instead, store session state until its expiry, and answer Session Present 1 only for a complete session.
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
        resumed in time
            opened resume session_expiry_interval=3600; > disconnect; > fin; +60 > nothing
            @1 opened resume session_expiry_interval=3600 < present
        resumed too late
            opened resume session_expiry_interval=3600; > disconnect; > fin; +7200 > nothing
            @1 opened resume session_expiry_interval=3600
        the session was not to be kept
            opened; > disconnect; > fin; @1 opened resume
        the client has ended the session
            opened resume session_expiry_interval=3600; > disconnect code=0 session_expiry_interval=0; > fin
            +5 > nothing; @1 opened resume session_expiry_interval=3600
        the end of the previous connection was not captured, so the session may have expired
            opened resume session_expiry_interval=300; > pingreq; < pingresp
            +301 @1 opened resume session_expiry_interval=300
        the capture may lack a DISCONNECT
            opened resume session_expiry_interval=3600; lost > disconnect code=0 session_expiry_interval=0; > fin
            +5 > nothing; @1 opened resume session_expiry_interval=3600
        a client with the same identifier but another user name
            opened resume user_name=alice session_expiry_interval=3600; > disconnect; > fin
            @1 opened resume user_name=bob session_expiry_interval=3600
        an UNSUBSCRIBE ended it on the previous connection
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > unsubscribe 2 a
            < unsuback 2 0; > disconnect; > fin; @1 opened resume session_expiry_interval=3600 < present
            @1 > unsubscribe 2 a; @1 < unsuback 2 0x11
        an UNSUBSCRIBE without an answer
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > unsubscribe 2 a; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > unsubscribe 2 a; @1 < unsuback 2 0x11
        the PUBCOMP for the first PUBREL may not have arrived
            opened resume session_expiry_interval=3600; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > pubrel 7; @1 < pubcomp 7 code=0x92
    """)
    bad = examples("""
        Session Present 0
            opened resume session_expiry_interval=3600; > disconnect; > fin; +60 > nothing
            @1 opened resume session_expiry_interval=3600 < !session_present
        CleanSession 0 in 3.1.1
            opened 3.1.1 resume; > disconnect; > fin; @1 opened resume < !session_present
        lost during a takeover
            opened resume session_expiry_interval=3600; @1 > connect resume session_expiry_interval=3600
            < disconnect code=0x8e; @1 < connack !session_present; < fin
        lost while the previous connection was open: only a warning
            opened resume session_expiry_interval=300; > pingreq; < pingresp
            +299 @1 opened resume session_expiry_interval=300 < !session_present; < disconnect code=0x8e; < fin
        lost while the previous connection was open, in 3.1.1
            opened 3.1.1 resume; @1 opened resume < !session_present; < fin
        a subscription is lost
            opened resume session_expiry_interval=3600; > subscribe 1 a:1; < suback 1 1; > disconnect; > fin
            @1 opened resume session_expiry_interval=3600 < present; @1 > unsubscribe 2 a
            @1 < unsuback 2 0x11 !reason_codes[0]
        a QoS 2 message is lost
            opened resume session_expiry_interval=3600; > publish a qos=2 id=7; < pubrec 7; > reset
            @1 opened resume session_expiry_interval=3600 < present; @1 > pubrel 7
            @1 < pubcomp 7 code=0x92 !reason_code
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare the server's answer with the known state of the session."""
        if isinstance(packet, Connack):
            return self._connack(packet, at)
        if isinstance(packet, Unsuback):
            return self._unsuback(packet, at)
        assert isinstance(packet, Pubcomp)
        if packet.reason_code != _NOT_FOUND or not at.history.carries:
            return None
        model = at.model(SessionModel)
        row = model.carried(at.direction.opposite, at).get(packet.packet_identifier)
        if not self._continues(model, at) or row is None or not row.sure or row.answered or row.phase is not RECEIVED:
            return None
        if at.other.has_sent(packet.packet_identifier):
            return None
        return self.report(
            "reason_code",
            f"CONNACK reports a continued session of {at.client_name!r}, but the server has lost the QoS 2 message "
            f"{row.packet_identifier} that it had answered with PUBREC",
            related=(row.related,),
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
        text = f"session of {at.client_name!r} should have been kept"
        if model.live:
            if not model.lasting:
                return None
            if not sent.timestamp_ns <= model.told_ns <= at.timestamp_ns:
                return self._open_before(model, f"{text}, since its previous connection was still open", at)
            return self.report(
                "session_present",
                f"{text}, since it was taken over from an open connection, but CONNACK has Session Present 0",
                related=related,
                **doubted(apart=at.is_apart(model.capture)),
            )
        until = model.kept_until()
        if until is None or not model.kept_seconds or at.timestamp_ns + until[1] >= until[0]:
            return None
        left = (until[0] - at.timestamp_ns) / SECOND_NS
        how_long = "indefinitely" if model.kept_seconds == ENDLESS else f"for {left:,.0f} s more"
        return self.report(
            "session_present",
            f"{text} {how_long}, but CONNACK has Session Present 0",
            severity=Severity.WARNING,
            confidence=Confidence.HEURISTIC,
            related=related,
        )

    def _open_before(self, model: SessionModel, text: str, at: RuleContext) -> Findings:
        """Report the loss, unless the session may have expired since the previous connection."""
        before = None if model.owner is None else at.connection_of(model.owner)
        heard_ns = None if before is None else before.server_side.last_timestamp_ns
        if before is None or heard_ns is None or at.is_apart(model.capture):
            return None
        seconds = ENDLESS if before.version is not V5 else before.session_expiry_interval or 0
        if seconds != ENDLESS and at.timestamp_ns >= heard_ns + seconds * SECOND_NS:
            return None
        return self.report(
            "session_present",
            f"{text}, but CONNACK has Session Present 0",
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
                    f"CONNACK reports a continued session of {at.client_name!r}, but its subscription {name!r}, "
                    f"granted with QoS {model.filters[name].granted}, no longer exists",
                    **doubted(apart=model.apart),
                )
