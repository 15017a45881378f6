from __future__ import annotations

import pytest

from mqttscope.net import unread
from mqttscope.net.unread import NOTHING, READS, UNREAD, WITH_KEYS, grouped, not_read, sentence

SKIPPED = {"not_ip": 7, "mqtt_sn": 3, "not_tcp": 40, "gtp_u_version_2": 1_200, "wlan_encrypted": 1, "truncated": 2}


def test_ordinary_frames_need_no_word() -> None:
    assert not_read({"not_ip": 1, "not_tcp": 2}) == {}
    assert sentence({"not_ip": 1, "not_tcp": 2}) is None
    assert sentence({}) is None


def test_frames_are_named_in_one_line_with_what_reads_them() -> None:
    assert sentence(SKIPPED) == (
        "not read: 1,200 frames of GTP-U version 2 (--via tshark reads them),"
        " 1 frame of encrypted 802.11 (--via tshark reads it with keys: --tshark-option),"
        " 3 frames of MQTT-SN over UDP (not MQTT; nothing here reads it),"
        " 2 frames cut inside their headers by the snap length"
    )


def test_what_tshark_has_looked_at_is_not_offered_to_it() -> None:
    assert sentence(SKIPPED, by_tshark=True) == (
        "not read: 1,200 frames of GTP-U version 2,"
        " 1 frame of encrypted 802.11 (tshark reads it with keys: --tshark-option),"
        " 3 frames of MQTT-SN over UDP (not MQTT; nothing here reads it),"
        " 2 frames cut inside their headers by the snap length"
    )


def test_commands_without_the_option_name_another() -> None:
    assert sentence({"gtp_u": 2}, offer=unread.OFFER_ELSEWHERE) == (
        "not read: 2 frames of GTP-U with unknown content (mqttscope inspect --via tshark reads them)"
    )


def test_counts_by_reason_and_by_coarse_reason() -> None:
    assert not_read(SKIPPED) == {"gtp_u_version_2": 1_200, "wlan_encrypted": 1, "mqtt_sn": 3, "truncated": 2}
    assert grouped(SKIPPED) == {"not_ip": 8, "not_tcp": 1_243, "truncated": 2}


@pytest.mark.parametrize("name", UNREAD)
def test_every_reason_can_be_said(name: str) -> None:
    one = unread.reason(name)
    assert one is unread.reason(name)
    assert one.reason == name
    assert UNREAD[name].words in one.detail
    assert UNREAD[name].reader in (READS, WITH_KEYS, NOTHING)
    assert UNREAD[name].group in ("not_ip", "not_tcp", "malformed", "truncated", "unsupported_link_type")
    assert UNREAD[name].words in (sentence({name: 1}) or "")
