"""Makes names of secrets, values and the notations that hold both; what is made knows nothing of how they are found.

`form` gives the form of a number: a text with a secret in it, and the parts of the secret that no output may show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

WORDS = (
    ("password",), ("passwd",), ("pass",), ("pwd",), ("passphrase",), ("passkey",), ("passcode",), ("psk",),
    ("secret",), ("token",), ("credential",), ("sig",), ("signature",), ("authorization",), ("api", "key"),
    ("access", "key"), ("private", "key"), ("shared", "key"), ("pin", "code"),
)  # fmt: skip
PLURALS = ("password", "secret", "token", "credential", "key", "passphrase")
BEFORE = (
    "wifi", "mqtt", "broker", "user", "admin", "device", "db", "my", "old", "new", "root", "ap", "sta", "client",
    "session", "refresh", "bot", "cloud", "x", "sub", "master", "backup",
)  # fmt: skip
BEHIND = ("value", "plain", "raw", "text", "data", "base64")
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def name(chance: Random) -> str:
    """A name of a secret."""
    words: list[str] = [*chance.sample(BEFORE, chance.choice((0, 0, 1, 1, 2))), *chance.choice(WORDS)]
    if words[-1] in PLURALS and chance.random() < 0.2:
        words[-1] += "s"
    if chance.random() < 0.15:
        words.append(chance.choice(BEHIND))
    style = chance.choice(("camel", "Pascal", "_", "-", ".", "UPPER", "Header-Case", "digits"))
    if style == "camel":
        return words[0] + "".join(word.capitalize() for word in words[1:])
    if style == "Pascal":
        return "".join(word.capitalize() for word in words)
    if style == "UPPER":
        return "_".join(words).upper()
    if style == "Header-Case":
        return "-".join(word.capitalize() for word in words)
    if style == "digits":
        return "_".join(words) + str(chance.randrange(10))
    return style.join(words)


def word(chance: Random, least: int = 8) -> str:
    """A value of letters and digits, with at least one of both."""
    return "q" + "".join(chance.choice(LETTERS) for _ in range(chance.randrange(least, 24))) + "7"


def odd(chance: Random) -> str:
    """A value with other characters."""
    return word(chance) + chance.choice("!#$*+/@^~?|:;,'\"\\ =&<>%{}[]()ü€") + word(chance)


@dataclass(frozen=True)
class Form:
    """A text with a secret in it."""

    notation: str
    text: str
    secrets: tuple[str, ...]
    """No output shows any of these."""


Writer = Callable[[Random, str, str], str]


def _json(chance: Random, name: str, value: str) -> str:
    pairs: list[tuple[str, object]] = [(name, value), ("user", "ford"), ("n", 5)]
    chance.shuffle(pairs)
    return json.dumps(
        dict(pairs), separators=chance.choice(((",", ":"), (", ", ": "))), ensure_ascii=chance.random() < 0.5
    )


def _nested(chance: Random, name: str, value: str) -> str:
    inner = chance.choice(({"value": value}, [value], {"a": {"b": [value]}}, [{"v": value}, "x"]))
    return json.dumps({"a": 1, name: inner, "b": "c"})


def _number(chance: Random, name: str, value: str) -> str:
    return json.dumps({name: int(value), "n": 1})


def _in_json(chance: Random, name: str, value: str) -> str:
    return json.dumps({"i": json.dumps({name: value, "a": 1}), "n": 2})


def _escaped(chance: Random, name: str, value: str) -> str:
    at = chance.randrange(len(name))
    return json.dumps({name: value}).replace(name, f"{name[:at]}\\u{ord(name[at]):04x}{name[at + 1 :]}", 1)


def _pair(chance: Random, name: str, value: str) -> str:
    return json.dumps({chance.choice(("name", "key", "id", "n")): name, chance.choice(("value", "val", "v")): value})


def _python(chance: Random, name: str, value: str) -> str:
    return repr({"a": 1, name: value})


def _line(mark: str) -> Writer:
    def write(chance: Random, name: str, value: str) -> str:
        return f"user{mark}ford\n{name}{mark}{value}\nport{mark}1883\n"

    return write


def _quoted(mark: str) -> Writer:
    def write(chance: Random, name: str, value: str) -> str:
        return f"user{mark}ford\n{name}{mark}{json.dumps(value, ensure_ascii=False)}\n"

    return write


def _form(chance: Random, name: str, value: str) -> str:
    pairs = [f"{name}={quote(value, safe='')}", "user=ford", "a=1"]
    chance.shuffle(pairs)
    return "&".join(pairs)


def _xml(chance: Random, name: str, value: str) -> str:
    return f"<login><user>ford</user><{name}>{escape(value)}</{name}></login>"


def _attribute(chance: Random, name: str, value: str) -> str:
    return f'<login user="ford" {name}={quoteattr(value)} n="1"/>'


def _csv(chance: Random, name: str, value: str) -> str:
    mark = chance.choice(",;\t")
    return f"user{mark}{name}{mark}n\r\nford{mark}{value}{mark}1\r\nbob{mark}{value[::-1]}{mark}2\r\n"


NOTATIONS: dict[str, tuple[Writer, Callable[[Random], str]]] = {
    "json": (_json, odd), "nested json": (_nested, odd), "json in json": (_in_json, odd), "python": (_python, odd),
    "escaped key": (_escaped, odd), "pair": (_pair, odd), "yaml": (_line(": "), word), "ini": (_line(" = "), word),
    "environment": (_line("="), word), "headers": (_line(": "), word), "quoted yaml": (_quoted(": "), odd),
    "toml": (_quoted(" = "), odd), "form": (_form, odd), "xml": (_xml, odd), "attribute": (_attribute, odd),
    "csv": (_csv, word),
    "number": (_number, lambda chance: str(chance.randrange(10**11, 10**15))),
    "connection string": (lambda chance, name, value: f"HostName=h;{name}={value};Entity=e", word),
    "query": (lambda chance, name, value: f"see https://host/a?x=1&{name}={value}&y=2 now", word),
    "unquoted key": (lambda chance, name, value: f'{{a:1,{name}:"{value}"}}', word),
    "option": (lambda chance, name, value: f"tool --{name.replace('_', '-')} {value} --port 1", word),
    "address": (lambda chance, name, value: f"mqtts://ford:{value}@host:8883/x", word),
    "bearer": (lambda chance, name, value: f"Authorization: Bearer {value}", word),
}  # fmt: skip


def form(number: int) -> Form:
    """A form; the same for a number each time."""
    chance = Random(number)
    notation = chance.choice(sorted(NOTATIONS))
    write, make = NOTATIONS[notation]
    named = name(chance)
    if notation in ("xml", "attribute", "python", "unquoted key", "option"):
        named = named.replace(".", "_")
    value = make(chance)
    text = write(chance, named, value)
    # What stands between odd characters may be written in several ways.
    pieces = [value[start : start + 6] for start in range(len(value) - 5)]
    # A part of a number may be that of a time.
    plain = [piece for piece in pieces if piece.isalnum() and piece.isascii()]
    secrets = (value,) if notation == "number" else tuple(plain)
    return Form(notation, text, secrets if notation != "csv" else (*secrets, *(piece[::-1] for piece in secrets)))


HARMLESS = re.findall(
    r"\S+",
    """
    temperature humidity pressure battery voltage current power energy linkquality state brightness color color_temp
    occupancy contact water_leak smoke tamper update last_seen action illuminance illuminance_lux device_temperature
    power_outage_count friendly_name ieee_address network_address manufacturer model model_id firmware_version
    unique_id object_id state_topic command_topic availability_topic payload_on payload_off payload_available
    payload_not_available device_class unit_of_measurement value_template json_attributes_topic icon entity_category
    expire_after force_update retain qos schema optimistic supported_color_modes effect_list min_mireds max_mireds
    Time Uptime UptimeSec Heap SleepMode Sleep LoadAvg MqttCount POWER POWER1 Wifi AP SSId BSSId Channel Mode RSSI
    Signal LinkCount Downtime StatusSNS ENERGY TotalStartTime Total Yesterday Today Period ApparentPower
    ReactivePower Factor TempUnit DS18B20 Id Temperature BME280 DewPoint wifi_rssi signal_strength ping spinning
    opinion pinMode pin_state pins pinout gpio_pins keyboard keypad keypress keyCode keyStatus key_id keyId
    publicKey public_key primaryKey primary_key foreignKey keyframe_interval hotkey monkey turkey donkey keyName
    partitionKey sort_key tokenCount token_count token_type tokenType tokenizer tokens_used passwordLength
    password_length password_changed passwordPolicy password_expired_at secretary secretariat passenger passengers
    passenger_count passage pass_rate passRate passed passes passive passthrough compass compass_heading bypass
    bypass_valve overpass surpassed author authors authored authority authenticated authentication_method auth_mode
    authMode authorized authorizations_count signal signals signed signature_valid signatureAlgorithm sigma
    sigfox_id design designed assign assigned resign insignia credential_type credentialsExpired access_key_id
    accessKeyId apiVersion api_url accessLevel access_count private sharedWith privateMode zipCode postal_code
    error_code code codes statusCode country_code lat lon latitude longitude altitude accuracy alt batt vel cog tst
    tid t conn inregions acc vac p topic dev_eui app_eui f_port f_cnt frm_payload decoded_payload rx_metadata
    gateway_ids snr spreading_factor data_rate_index coding_rate frequency timestamp received_at end_device_ids
    application_ids device_id consumed_airtime metrics alias datatype is_null seq bdSeq properties values desired
    reported delta version metadata ison has_timer timer_started timer_duration timer_remaining overpower source
    output apower aenergy by_minute minute_ts tF tC unixtime ram_total ram_free fs_size fs_free available_updates
    sys params method src dst component speed heading satellites ignition odometer fuel_level engine_rpm
    coolant_temp throttle gear door_open trunk_open machine line cycle count rejects good_parts setpoint mode
    valve_position flow_rate level tank_id pump_state alarm alarms severity message description location floor room
    zone name title id uuid hash checksum crc length size bytes offset host hostname port ip mac gateway netmask dns
    ssid bssid channel band security encryption hidden username user login
    """,
)
"""Names from public examples of payloads: Home Assistant, Zigbee2MQTT, Tasmota, Shelly, OwnTracks, The Things Network,
Sparkplug, AWS IoT, fleet and machine data; and such as look like names of secrets."""
