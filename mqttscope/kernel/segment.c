/* Locates the TCP segment of a usual frame, and judges its checksum: `net.headers.locate` and `net.checksum`. */

#include "kernel.h"

static uint32_t be32(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }
static uint32_t be16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

static uint32_t add_words(const uint8_t *bytes, uint32_t length) {
    uint64_t sum = 0;
    while (length >= 4) {
        sum += be32(bytes);
        bytes += 4;
        length -= 4;
    }
    if (length >= 2) {
        sum += be16(bytes);
        bytes += 2;
        length -= 2;
    }
    if (length)
        sum += (uint32_t)bytes[0] << 8;
    return (uint32_t)(sum % 0xFFFF);
}

/* Whether the checksum is neither right nor left to a network interface. */
static bool is_wrong(const uint8_t *addresses, uint32_t addresses_length, const uint8_t *tcp, uint32_t length) {
    uint32_t pseudo, field = be16(tcp + 16);
    if (length > 1480)
        return false; /* may have been joined */
    pseudo = add_words(addresses, addresses_length) + 6;
    if ((pseudo + length + add_words(tcp, length)) % 0xFFFF == 0 || !field)
        return false;
    return (pseudo + 0xFFFF - field) % 0xFFFF && (pseudo + 0xFFFF - field + length) % 0xFFFF;
}

/* Whether Python cannot find TCP in an Internet Protocol datagram either. */
static bool has_no_tcp(uint8_t protocol) { return protocol == 1 || protocol == 2 || protocol == 58; }

int segment_of(const Frame *frame, Segment *segment) {
    const uint8_t *bytes = frame->bytes, *ip = NULL, *tcp;
    uint32_t size = frame->length, end, offset, protocol, addresses_length, total;
    segment->tag = 0;
    if (frame->link == 1 && size >= 14) {
        uint32_t type = be16(bytes + 12);
        if (type == 0x0806)
            return NO_TCP; /* ARP */
        if (size < 54)
            return UNUSUAL;
        if (type == 0x0800 && bytes[14] == 0x45)
            ip = bytes + 14;
        else if (type == 0x86DD && bytes[14] == 0x60 && size >= 74)
            ip = bytes + 14;
        else if (type == 0x8100 && size >= 58 && be16(bytes + 16) == 0x0800 && bytes[18] == 0x45) {
            ip = bytes + 18;
            segment->tag = be16(bytes + 14) & 0x0FFF;
            if (!segment->tag)
                return UNUSUAL;
        }
    } else if (frame->link == 101 || frame->link == 113 || frame->link == 276) {
        /* Without a link layer, and cooked captures of Linux, of both versions. */
        uint32_t start = frame->link == 101 ? 0 : frame->link == 113 ? 16 : 20;
        uint32_t type = size < 20 || !start ? 0 : be16(bytes + (frame->link == 113 ? 14 : 0));
        if (type == 0x0806)
            return NO_TCP;
        if (size >= start + 40 && bytes[start] == 0x45 && (type == 0x0800 || !start))
            ip = bytes + start;
        else if (size >= start + 60 && bytes[start] == 0x60 && (type == 0x86DD || !start))
            ip = bytes + start;
    }
    if (!ip)
        return UNUSUAL;
    if (ip[0] == 0x45) {
        total = be16(ip + 2);
        protocol = ip[9];
        if (be16(ip + 6) & 0x3FFF)
            return UNUSUAL;
        tcp = ip + 20;
        segment->key_length = 12;
        addresses_length = 8;
        memcpy(segment->key, ip + 12, 12);
    } else {
        total = 40 + be16(ip + 4);
        protocol = ip[6];
        tcp = ip + 40;
        segment->key_length = 36;
        addresses_length = 32;
        memcpy(segment->key, ip + 8, 36);
    }
    if (protocol != 6)
        return has_no_tcp(protocol) ? NO_TCP : UNUSUAL;
    end = (uint32_t)(ip - bytes) + total;
    offset = (uint32_t)(tcp - bytes) + (tcp[12] >> 2 & 0x3C);
    if (tcp[12] < 0x50 || offset > end || end > size)
        return UNUSUAL;
    segment->sequence = be32(tcp + 4);
    segment->acknowledgment = be32(tcp + 8);
    segment->flags = tcp[13];
    segment->window = (uint16_t)be16(tcp + 14);
    segment->options = tcp + 20;
    segment->options_length = offset - (uint32_t)(tcp + 20 - bytes);
    segment->payload = bytes + offset;
    segment->length = end - offset;
    segment->frame = frame->number;
    segment->ns = frame->ns;
    segment->wrong = is_wrong(tcp - addresses_length, addresses_length, tcp, end - (uint32_t)(tcp - bytes));
    return A_SEGMENT;
}

bool time_stamp(const uint8_t *options, uint32_t length, uint32_t *stamp) {
    uint32_t at = 0;
    if (length >= 12 && be32(options) == 0x0101080A) {
        *stamp = be32(options + 4);
        return true;
    }
    while (at < length && options[at]) {
        uint32_t size;
        if (options[at] == 1) {
            at++;
            continue;
        }
        size = at + 1 < length ? options[at + 1] : 0;
        if (size < 2 || at + size > length)
            return false;
        if (options[at] == 8 && size == 10) {
            *stamp = be32(options + at + 2);
            return true;
        }
        at += size;
    }
    return false;
}
