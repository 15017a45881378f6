"""What the numbers of TLS are called: content types, versions and alerts (RFC 8446 sections 5.1 and 6)."""

from __future__ import annotations

CONTENT_TYPES = {20: "change_cipher_spec", 21: "alert", 22: "handshake", 23: "application_data", 24: "heartbeat"}
VERSIONS = {0x0300: "SSL 3.0", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", 0x0304: "TLS 1.3"}
ALERT_LEVELS = {1: "warning", 2: "fatal"}
_ALERT_NAMES = (
    "0 close_notify, 10 unexpected_message, 20 bad_record_mac, 21 decryption_failed, 22 record_overflow, "
    "30 decompression_failure, 40 handshake_failure, 41 no_certificate, 42 bad_certificate, "
    "43 unsupported_certificate, 44 certificate_revoked, 45 certificate_expired, 46 certificate_unknown, "
    "47 illegal_parameter, 48 unknown_ca, 49 access_denied, 50 decode_error, 51 decrypt_error, "
    "60 export_restriction, 70 protocol_version, 71 insufficient_security, 80 internal_error, "
    "86 inappropriate_fallback, 90 user_canceled, 100 no_renegotiation, 109 missing_extension, "
    "110 unsupported_extension, 111 certificate_unobtainable, 112 unrecognized_name, "
    "113 bad_certificate_status_response, 114 bad_certificate_hash_value, 115 unknown_psk_identity, "
    "116 certificate_required, 120 no_application_protocol"
)
ALERTS = {int(number): name for number, name in (entry.split() for entry in _ALERT_NAMES.split(", "))}
"""Alert descriptions by number (RFC 8446 section 6 and those before it)."""
