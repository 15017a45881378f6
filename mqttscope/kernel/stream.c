/* From the bytes of one direction to packets: framing as in `mqtt.stream.PacketStream`, for streams without a fault.

Until the client's CONNECT and the server's CONNACK have passed, Python reads the bytes as well (`is_ready`): it
recognises the protocol and makes the connection.  After that, frequent packets become lines here, and Python gets the
others one by one. */

#include "kernel.h"

#define MAX_PACKET (4u << 20)
#define MAX_HELD (16 << 20)
#define MAX_ALIAS_BYTES (16u << 10)

enum { CONNECT = 1, CONNACK, PUBLISH };

/* Counts a packet that Python does not read. */
static void count_packet(Kernel *kernel, Half *half, const Packet *packet, const Segment *at) {
    half->packets++;
    half->bytes += packet->length;
    half->last_ns = at->ns;
    kernel->packets++;
}

static int take_packet(Kernel *kernel, Flow *flow, int from, Packet *packet, const Segment *at) {
    Half *half = &flow->half[from];
    int why;
    if (!half->begun) {
        /* The first packets of both sides, the client's before any byte of the server. */
        if (packet->kind != (from == INITIATOR ? CONNECT : CONNACK) || (from == RESPONDER && !flow->is_connected))
            return PROTOCOL;
    } else if (packet->kind == CONNECT || packet->kind == CONNACK) {
        return PROTOCOL;
    }
    why = packet_read(kernel, flow->version, packet);
    if (why)
        return why;
    if (!half->begun) {
        half->begun = true;
        if (from == INITIATOR) {
            flow->is_connected = true;
            flow->version = packet->version;
        }
    }
    if (packet->kind == PUBLISH && packet->alias >= 0) {
        if (!flow->is_ready)
            return PROTOCOL;
        half->alias_bytes += packet->topic_length;
        if (half->alias_bytes > MAX_ALIAS_BYTES && !kernel->running)
            return LARGE;
    }
    if (!kernel->running || !flow->is_ready)
        return 0;
    if (kernel->feed) {
        why = event_is_frequent(packet) ? event_feed(kernel, flow, from, packet, at) : host_packet(kernel, flow, from, packet, at);
        half->stream_offset += packet->length;
        return why;
    }
    if (kernel->tally) {
        if (!tally_takes(packet)) {
            why = tally_give_flow(kernel, flow) || host_packet(kernel, flow, from, packet, at) ||
                  tally_take_flow(kernel, flow, from, at->ns);
        } else {
            why = tally_packet(kernel, flow, from, packet, at);
            count_packet(kernel, half, packet, at);
        }
        half->stream_offset += packet->length;
        return why ? -1 : 0;
    }
    if (flow->generation != kernel->generation && host_introduce(kernel, flow))
        return -1;
    note_latest(half, at->frame, at->ns, half->stream_offset + packet->length);
    if (packet->is_frequent) {
        why = line_write(kernel, flow, from, packet, at);
        count_packet(kernel, half, packet, at);
    } else {
        why = host_packet(kernel, flow, from, packet, at);
    }
    half->stream_offset += packet->length;
    return why;
}

/* Keeps the beginning of a packet that is not complete. */
static int hold(Kernel *kernel, Half *half, const uint8_t *bytes, uint32_t length) {
    if (half->held_bytes + length > half->held_room) {
        uint32_t room = half->held_bytes + length + 256;
        uint8_t *held = PyMem_RawRealloc(half->held, room);
        if (!held)
            return UNREADABLE;
        half->held = held;
        half->held_room = room;
    }
    memcpy(half->held + half->held_bytes, bytes, length);
    half->held_bytes += length;
    kernel->held_bytes += length;
    return kernel->held_bytes > MAX_HELD ? LARGE : 0;
}

int stream_take(Kernel *kernel, Flow *flow, int from, const uint8_t *bytes, uint32_t length, const Segment *at) {
    Half *half = &flow->half[from];
    bool was_ready = flow->is_ready;
    int why = 0;
    if (from == RESPONDER && !flow->is_connected)
        return PROTOCOL;
    if (from == INITIATOR && !half->begun && !half->held_bytes && bytes[0] != 0x10)
        return PROTOCOL;
    if (from == RESPONDER && !half->begun && !half->held_bytes && (length < 4 || bytes[0] != 0x20 || bytes[1] >= 0x7F))
        return PROTOCOL;
    if (!was_ready && kernel->running && host_data(kernel, flow, from, bytes, length, at))
        return -1;
    if (half->held_bytes) {
        why = hold(kernel, half, bytes, length);
        if (why)
            return why;
        bytes = half->held;
        length = half->held_bytes;
    }
    uint32_t position = 0;
    while (!why && position < length) {
        Packet packet = {.raw = bytes + position};
        uint32_t left = length - position, body = 0, shift = 0, at_byte = 1;
        while (at_byte < left && at_byte < 5) {
            uint8_t byte = packet.raw[at_byte++];
            body |= (uint32_t)(byte & 0x7F) << shift;
            shift += 7;
            if (!(byte & 0x80)) {
                if (!byte && at_byte > 2)
                    return MALFORMED; /* not the shortest form */
                packet.header = at_byte;
                break;
            }
        }
        if (!packet.header) {
            if (at_byte >= 5)
                return MALFORMED;
            break;
        }
        packet.length = packet.header + body;
        packet.kind = packet.raw[0] >> 4;
        if (packet.length > MAX_PACKET)
            return LARGE;
        if (left < packet.length) {
            uint8_t flags = packet.raw[0] & 15;
            if (packet.kind == 0 || packet.kind == 15 || (packet.kind == PUBLISH && (flags & 6) == 6) ||
                (packet.kind != PUBLISH && packet.length > 65536))
                return MALFORMED;
            break;
        }
        why = take_packet(kernel, flow, from, &packet, at);
        position += packet.length;
    }
    if (why)
        return why;
    if (bytes == half->held) {
        half->held_bytes = length - position;
        kernel->held_bytes -= position;
        memmove(half->held, half->held + position, half->held_bytes);
        if (!half->held_bytes) {
            PyMem_RawFree(half->held);
            half->held = NULL;
            half->held_room = 0;
        }
    } else if (position < length) {
        why = hold(kernel, half, bytes + position, length - position);
        if (why)
            return why;
    }
    if (!was_ready && flow->half[INITIATOR].begun && flow->half[RESPONDER].begun && !flow->half[INITIATOR].held_bytes &&
        !flow->half[RESPONDER].held_bytes) {
        flow->is_ready = true;
        if (kernel->running)
            return host_ready(kernel, flow);
    }
    return 0;
}
