/* Reads the frames of a mapped pcap or pcapng file, as `capture/pcap.py` and `capture/pcapng.py` do.

Only files without a fault are ordinary, and pcapng files only with sections, interfaces and Enhanced Packet Blocks
without drop counts: anything else may be a notice that Python reports. */

#include "kernel.h"

#define FRAME_LIMIT (64u << 20)

static uint32_t read_u32(const Capture *capture, size_t at) {
    uint32_t value;
    memcpy(&value, capture->data + at, 4);
    return capture->swapped ? __builtin_bswap32(value) : value;
}

static uint16_t read_u16(const Capture *capture, size_t at) {
    uint16_t value;
    memcpy(&value, capture->data + at, 2);
    return capture->swapped ? (uint16_t)(value << 8 | value >> 8) : value;
}

void capture_rewind(Capture *capture) {
    capture->number = 0;
    capture->at = capture->next_generation ? 0 : 24;
    capture->interface_count = 0;
}

int capture_open(Capture *capture, const uint8_t *data, size_t size) {
    uint32_t magic;
    memset(capture, 0, sizeof *capture);
    capture->data = data;
    capture->size = size;
    if (size < 24)
        return -1;
    memcpy(&magic, data, 4);
    if (magic == 0x0A0D0D0A) {
        capture->next_generation = true;
        capture_rewind(capture);
        return 0;
    }
    if (magic == 0xD4C3B2A1 || magic == 0x4D3CB2A1) {
        capture->swapped = true;
        magic = __builtin_bswap32(magic);
    }
    if (magic != 0xA1B2C3D4 && magic != 0xA1B23C4D)
        return -1;
    capture->scale = magic == 0xA1B2C3D4 ? 1000 : 1;
    capture->link = read_u32(capture, 20) & 0xFFFF;
    capture_rewind(capture);
    return 0;
}

void capture_close(Capture *capture) {
    PyMem_RawFree(capture->interfaces);
    capture->interfaces = NULL;
}

int capture_copy(Capture *capture) {
    size_t size = capture->interface_count * sizeof *capture->interfaces;
    Interface *interfaces = size ? PyMem_RawMalloc(size) : NULL;
    if (size && !interfaces)
        return -1;
    if (size)
        memcpy(interfaces, capture->interfaces, size);
    capture->interfaces = interfaces;
    return 0;
}

/* Adds the interface of an Interface Description Block, if its clock is ordinary. */
static int add_interface(Capture *capture, size_t body, size_t stop) {
    Interface *interface, *more;
    uint64_t unit = 1000000;
    if (stop - body < 8)
        return -1;
    for (size_t at = body + 8; at + 4 <= stop;) {
        uint16_t code = read_u16(capture, at), length = read_u16(capture, at + 2);
        if (!code)
            break;
        if (at + 4 + length > stop)
            return -1;
        if (code == 14)
            return -1; /* an offset of the times */
        if (code == 9 && length == 1) {
            uint8_t exponent = capture->data[at + 4];
            if (exponent > 9)
                return -1; /* finer than nanoseconds, or a power of two */
            for (unit = 1; exponent; exponent--)
                unit *= 10;
        }
        at += 4 + length + (-length & 3);
    }
    if (capture->interface_count >= 1024)
        return -1;
    more = PyMem_RawRealloc(capture->interfaces, (capture->interface_count + 1) * sizeof *more);
    if (!more)
        return -1;
    capture->interfaces = more;
    interface = &more[capture->interface_count++];
    interface->link = read_u16(capture, body);
    interface->multiplier = 1000000000 / unit;
    return 0;
}

static int next_block(Capture *capture, Frame *frame) {
    for (;;) {
        size_t at = capture->at, left = capture->size - at;
        uint32_t kind, length;
        if (!left)
            return 0;
        if (left < 12)
            return -1;
        kind = read_u32(capture, at);
        if (kind == 0x0A0D0D0A) {
            uint32_t mark;
            if (left < 28)
                return -1;
            memcpy(&mark, capture->data + at + 8, 4);
            if (mark != 0x1A2B3C4D && mark != 0x4D3C2B1A)
                return -1;
            capture->swapped = mark == 0x4D3C2B1A;
            capture->interface_count = 0;
        }
        length = read_u32(capture, at + 4);
        if (length < 12 || length & 3 || length > left || read_u32(capture, at + length - 4) != length)
            return -1;
        capture->at = at + length;
        if (kind == 6) {
            uint32_t id, captured;
            uint64_t ticks;
            if (length < 32)
                return -1;
            id = read_u32(capture, at + 8);
            captured = read_u32(capture, at + 20);
            if (id >= capture->interface_count || captured > FRAME_LIMIT || captured > length - 32)
                return -1;
            ticks = (uint64_t)read_u32(capture, at + 12) << 32 | read_u32(capture, at + 16);
            if (ticks > (uint64_t)INT64_MAX / 2 / capture->interfaces[id].multiplier)
                return -1;
            for (size_t option = at + 28 + captured + (-captured & 3); option + 4 <= at + length - 4;) {
                uint16_t code = read_u16(capture, option), size = read_u16(capture, option + 2);
                if (!code)
                    break;
                if (code == 4 || option + 4 + size > at + length - 4)
                    return -1; /* a drop count, or damage */
                option += 4 + size + (-size & 3);
            }
            frame->bytes = capture->data + at + 28;
            frame->length = captured;
            frame->original = read_u32(capture, at + 24);
            frame->number = ++capture->number;
            frame->ns = (int64_t)(ticks * capture->interfaces[id].multiplier);
            frame->link = capture->interfaces[id].link;
            frame->interface = id;
            return 1;
        }
        if (kind == 0x0A0D0D0A) {
            if (length < 28 || read_u16(capture, at + 12) != 1)
                return -1;
        } else if (kind == 1) {
            if (add_interface(capture, at + 8, at + length - 4))
                return -1;
        } else if (kind == 2 || kind == 3 || kind == 5 || kind == 10) {
            return -1; /* packets of other forms, statistics, secrets */
        }
    }
}

int capture_next(Capture *capture, Frame *frame) {
    size_t at = capture->at, left = capture->size - at;
    uint32_t captured;
    if (capture->next_generation)
        return next_block(capture, frame);
    if (!left)
        return 0;
    if (left < 16)
        return -1;
    captured = read_u32(capture, at + 8);
    if (captured > FRAME_LIMIT || captured > left - 16)
        return -1;
    frame->bytes = capture->data + at + 16;
    frame->length = captured;
    frame->original = read_u32(capture, at + 12);
    frame->number = ++capture->number;
    frame->ns = read_u32(capture, at) * NS + (int64_t)read_u32(capture, at + 4) * capture->scale;
    frame->link = capture->link;
    frame->interface = 0;
    capture->at = at + 16 + captured;
    return 1;
}
