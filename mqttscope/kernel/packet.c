/* Checks that a packet is well formed, and locates the fields of frequent ones: `mqtt/packets.py` for correct packets.

Whatever is not surely well formed makes its connection odd, so this may be stricter than Python, never laxer. */

#include "kernel.h"

enum { CONNECT = 1, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK };
enum { PINGREQ = 12, PINGRESP, DISCONNECT, AUTH };
#define WILL 0

typedef struct {
    const uint8_t *at, *end;
} Reader;

/* Length of the well-formed UTF-8 at the beginning of a text: its whole length if it is valid. */
int utf8_end(const uint8_t *bytes, uint32_t length) {
    uint32_t at = 0;
    while (at < length) {
        uint8_t first = bytes[at];
        uint32_t more, low = 0x80, high = 0xBF;
        if (first < 0x80) {
            at++;
            continue;
        }
        if (first >= 0xC2 && first <= 0xDF)
            more = 1;
        else if (first >= 0xE0 && first <= 0xEF) {
            more = 2;
            low = first == 0xE0 ? 0xA0 : 0x80;
            high = first == 0xED ? 0x9F : 0xBF;
        } else if (first >= 0xF0 && first <= 0xF4) {
            more = 3;
            low = first == 0xF0 ? 0x90 : 0x80;
            high = first == 0xF4 ? 0x8F : 0xBF;
        } else {
            break;
        }
        if (length - at <= more || bytes[at + 1] < low || bytes[at + 1] > high)
            break;
        for (uint32_t next = 2; next <= more; next++)
            if ((bytes[at + next] & 0xC0) != 0x80)
                return (int)at;
        at += more + 1;
    }
    return (int)at;
}

static bool skip(Reader *reader, uint32_t length) {
    if ((size_t)(reader->end - reader->at) < length)
        return false;
    reader->at += length;
    return true;
}

static bool read_u16(Reader *reader, uint32_t *value) {
    if (!skip(reader, 2))
        return false;
    *value = (uint32_t)reader->at[-2] << 8 | reader->at[-1];
    return true;
}

static bool read_binary(Reader *reader) {
    uint32_t length;
    return read_u16(reader, &length) && skip(reader, length);
}

static bool read_text(Reader *reader) {
    const uint8_t *text = reader->at + 2;
    uint32_t length;
    if (!read_binary(reader))
        return false;
    length = (uint32_t)(reader->at - text);
    return !memchr(text, 0, length) && (uint32_t)utf8_end(text, length) == length;
}

static bool read_variable(Reader *reader, uint32_t *value) {
    *value = 0;
    for (int at = 0; at < 4; at++) {
        uint8_t byte;
        if (!skip(reader, 1))
            return false;
        byte = reader->at[-1];
        *value |= (uint32_t)(byte & 0x7F) << 7 * at;
        if (!(byte & 0x80))
            return byte || !at;
    }
    return false;
}

#define OF(kind) (1u << (kind))
#define ACKS (OF(PUBACK) | OF(PUBREC) | OF(PUBREL) | OF(PUBCOMP))

/* Table 2-4 of MQTT 5.0: the form of each property, and the packets that may have it. */
static const struct {
    char form;
    uint32_t packets;
} PROPERTIES[0x2B] = {
    [0x01] = {'1', OF(PUBLISH) | OF(WILL)},
    [0x02] = {'4', OF(PUBLISH) | OF(WILL)},
    [0x03] = {'t', OF(PUBLISH) | OF(WILL)},
    [0x08] = {'t', OF(PUBLISH) | OF(WILL)},
    [0x09] = {'b', OF(PUBLISH) | OF(WILL)},
    [0x0B] = {'v', OF(PUBLISH) | OF(SUBSCRIBE)},
    [0x11] = {'4', OF(CONNECT) | OF(CONNACK) | OF(DISCONNECT)},
    [0x12] = {'t', OF(CONNACK)},
    [0x13] = {'2', OF(CONNACK)},
    [0x17] = {'1', OF(CONNECT)},
    [0x18] = {'4', OF(WILL)},
    [0x19] = {'1', OF(CONNECT)},
    [0x1A] = {'t', OF(CONNACK)},
    [0x1C] = {'t', OF(CONNACK) | OF(DISCONNECT)},
    [0x1F] = {'t', OF(CONNACK) | ACKS | OF(SUBACK) | OF(UNSUBACK) | OF(DISCONNECT)},
    [0x21] = {'2', OF(CONNECT) | OF(CONNACK)},
    [0x22] = {'2', OF(CONNECT) | OF(CONNACK)},
    [0x23] = {'2', OF(PUBLISH)},
    [0x24] = {'1', OF(CONNACK)},
    [0x25] = {'1', OF(CONNACK)},
    [0x26] = {'p', ~0u},
    [0x27] = {'4', OF(CONNECT) | OF(CONNACK)},
    [0x28] = {'1', OF(CONNACK)},
    [0x29] = {'1', OF(CONNACK)},
    [0x2A] = {'1', OF(CONNACK)},
};

/* A property block with its length; `alias` receives the first Topic Alias. */
static bool read_block(Reader *reader, int owner, const uint8_t **block, uint32_t *length, int32_t *alias) {
    Reader inner;
    uint32_t size, number;
    if (!read_variable(reader, &size) || !skip(reader, size))
        return false;
    inner = (Reader){reader->at - size, reader->at};
    if (block) {
        *block = inner.at;
        *length = size;
    }
    while (inner.at < inner.end) {
        uint8_t identifier = *inner.at++;
        bool is_right = false;
        if (identifier >= 0x2B || !(PROPERTIES[identifier].packets & OF(owner)))
            return false;
        switch (PROPERTIES[identifier].form) {
        case '1': is_right = skip(&inner, 1); break;
        case '2':
            is_right = read_u16(&inner, &number);
            if (is_right && identifier == 0x23 && alias && *alias < 0)
                *alias = (int32_t)number;
            break;
        case '4': is_right = skip(&inner, 4); break;
        case 'v': is_right = read_variable(&inner, &number); break;
        case 'b': is_right = read_binary(&inner); break;
        case 't': is_right = read_text(&inner); break;
        case 'p': is_right = read_text(&inner) && read_text(&inner); break;
        }
        if (!is_right)
            return false;
    }
    return true;
}

static bool is_allowed(const Kernel *kernel, uint8_t version, int kind, uint8_t code) {
    return kernel->allowed[version][kind][code >> 6] >> (code & 63) & 1;
}

static bool read_publish(Packet *packet, Reader *reader) {
    uint8_t flags = packet->raw[0];
    uint32_t number;
    if ((flags & 6) == 6)
        return false;
    packet->topic = reader->at + 2;
    if (!read_text(reader))
        return false;
    packet->topic_length = (uint32_t)(reader->at - packet->topic);
    if ((packet->topic_length == 4 && !memcmp(packet->topic, "MQTT", 4)) ||
        (packet->topic_length == 6 && !memcmp(packet->topic, "MQIsdp", 6)))
        return false; /* perhaps a CONNECT in disguise */
    if (flags & 6) {
        if (!read_u16(reader, &number))
            return false;
        packet->packet_identifier = (int32_t)number;
    }
    if (packet->version == 5 && !read_block(reader, PUBLISH, &packet->block, &packet->block_length, &packet->alias))
        return false;
    packet->payload = reader->at;
    packet->payload_length = (uint32_t)(reader->end - reader->at);
    reader->at = reader->end;
    packet->is_frequent = true;
    return true;
}

static bool read_acknowledgement(const Kernel *kernel, Packet *packet, Reader *reader) {
    uint32_t number;
    if ((packet->raw[0] & 15) != (packet->kind == PUBREL ? 2 : 0) || !read_u16(reader, &number))
        return false;
    packet->packet_identifier = (int32_t)number;
    packet->is_frequent = true;
    if (reader->at == reader->end)
        return true;
    if (packet->version < 5 || !is_allowed(kernel, packet->version, packet->kind, *reader->at))
        return false;
    packet->reason = *reader->at++;
    if (reader->at == reader->end)
        return true;
    packet->is_frequent = false;
    return read_block(reader, packet->kind, NULL, NULL, NULL);
}

static bool read_connect(Packet *packet, Reader *reader) {
    const uint8_t *name = reader->at;
    uint8_t flags;
    if (packet->raw[0] != 0x10)
        return false;
    if (skip(reader, 7) && !memcmp(name, "\0\4MQTT", 6) && (name[6] == 4 || name[6] == 5))
        packet->version = name[6];
    else if (reader->at == name + 7 && skip(reader, 2) && !memcmp(name, "\0\6MQIsdp\3", 9))
        packet->version = 3;
    else
        return false;
    if (!skip(reader, 3))
        return false;
    flags = reader->at[-3];
    if (flags & 1 || (flags & 0x18) == 0x18 || (!(flags & 4) && flags & 0x38))
        return false;
    if (packet->version == 5 && !read_block(reader, CONNECT, NULL, NULL, NULL))
        return false;
    if (!read_text(reader))
        return false;
    if (flags & 4) {
        if (packet->version == 5 && !read_block(reader, WILL, NULL, NULL, NULL))
            return false;
        if (!read_text(reader) || !read_binary(reader))
            return false;
    }
    if (flags & 0x80 && !read_text(reader))
        return false;
    return !(flags & 0x40) || read_binary(reader);
}

static bool read_connack(const Kernel *kernel, Packet *packet, Reader *reader) {
    if (packet->raw[0] != 0x20 || !skip(reader, 2) || reader->at[-2] > (packet->version == 3 ? 0 : 1))
        return false;
    if (!is_allowed(kernel, packet->version, CONNACK, reader->at[-1]))
        return false;
    return packet->version < 5 || read_block(reader, CONNACK, NULL, NULL, NULL);
}

static bool read_codes(const Kernel *kernel, Packet *packet, Reader *reader) {
    while (reader->at < reader->end)
        if (!is_allowed(kernel, packet->version, packet->kind, *reader->at++))
            return false;
    return true;
}

static bool read_request(const Kernel *kernel, Packet *packet, Reader *reader) {
    static const uint8_t RESERVED[6] = {0, 0, 0, 0, 0xFC, 0xC0};
    uint32_t number;
    bool asks = packet->kind == SUBSCRIBE || packet->kind == UNSUBSCRIBE;
    if ((packet->raw[0] & 15) != (asks ? 2 : 0) || !read_u16(reader, &number))
        return false;
    packet->packet_identifier = (int32_t)number;
    if (packet->version == 5 && !read_block(reader, packet->kind, &packet->block, &packet->block_length, NULL))
        return false;
    packet->payload = reader->at;
    packet->payload_length = (uint32_t)(reader->end - reader->at);
    packet->is_frequent = !packet->block_length;
    if (packet->kind == UNSUBACK && packet->version < 5)
        return reader->at == reader->end;
    if (!asks)
        return read_codes(kernel, packet, reader);
    while (reader->at < reader->end) {
        if (!read_text(reader))
            return false;
        if (packet->kind == SUBSCRIBE) {
            uint8_t options;
            if (!skip(reader, 1))
                return false;
            options = reader->at[-1];
            if ((options & 3) == 3 || options & RESERVED[packet->version])
                return false;
            if (packet->version < 5 && options & 0xFC)
                packet->is_frequent = false; /* reserved bits are shown */
        }
    }
    return true;
}

static bool read_disconnect(const Kernel *kernel, Packet *packet, Reader *reader) {
    if (packet->raw[0] != 0xE0)
        return false;
    if (reader->at == reader->end)
        return true;
    if (packet->version < 5 || !is_allowed(kernel, 5, DISCONNECT, *reader->at++))
        return false;
    return reader->at == reader->end || read_block(reader, DISCONNECT, NULL, NULL, NULL);
}

int packet_read(const Kernel *kernel, uint8_t version, Packet *packet) {
    Reader reader = {packet->raw + packet->header, packet->raw + packet->length};
    bool is_right = false;
    packet->version = version;
    packet->packet_identifier = packet->alias = packet->reason = -1;
    switch (packet->kind) {
    case CONNECT: is_right = read_connect(packet, &reader); break;
    case CONNACK: is_right = read_connack(kernel, packet, &reader); break;
    case PUBLISH: is_right = read_publish(packet, &reader); break;
    case PUBACK: case PUBREC: case PUBREL: case PUBCOMP:
        is_right = read_acknowledgement(kernel, packet, &reader);
        break;
    case SUBSCRIBE: case SUBACK: case UNSUBSCRIBE: case UNSUBACK:
        is_right = read_request(kernel, packet, &reader);
        break;
    case PINGREQ: case PINGRESP:
        is_right = packet->is_frequent = !(packet->raw[0] & 15);
        break;
    case DISCONNECT: is_right = read_disconnect(kernel, packet, &reader); break;
    }
    return is_right && reader.at == reader.end ? 0 : MALFORMED;
}
