/* Follows the segments of one connection: the ordinary cases of `net.flows`, `net.reassembly` and `net.flow_identity`.

Ordinary is: SYN and SYN-ACK first, numbers near the known ones, late and repeated segments with the known bytes, holes
that are filled before a time-out, FIN of both sides or a reset in order, and only empty segments after the end. */

#include "kernel.h"

#define TAP_NS 1000000LL
#define PROVEN_WAIT_NS (NS / 4)
#define IDLE_NS (3 * 3600 * NS)
#define LINGER_NS (125 * NS)
#define START_WINDOW (1 << 20)
#define BEGIN_WINDOW (1 << 16)
#define RESET_WINDOW 65535
#define MAX_WAITING_BYTES (256u << 10)
#define MAX_WAITING 512u

static int64_t most(int64_t first, int64_t second) { return first > second ? first : second; }

/* Grows an array of pieces; false without memory. */
static bool make_room(Piece **pieces, uint32_t *room, uint32_t wanted) {
    uint32_t more = *room ? *room : 4;
    Piece *grown;
    while (more < wanted)
        more *= 2;
    if (more == *room)
        return true;
    grown = PyMem_RawRealloc(*pieces, more * sizeof *grown);
    if (!grown)
        return false;
    *pieces = grown;
    *room = more;
    return true;
}

static bool remember(Half *half, const uint8_t *bytes, uint32_t length) {
    uint32_t room = half->history_room;
    if (half->history_count == HISTORY) {
        memmove(half->history, half->history + HISTORY / 2, HISTORY / 2 * sizeof *half->history);
        half->history_count = HISTORY / 2;
    }
    if (!make_room(&half->history, &room, half->history_count + 1u))
        return false;
    half->history_room = (uint8_t)room;
    half->history[half->history_count++] = (Piece){half->offset, length, bytes};
    return true;
}

/* Whether delivered bytes at `start` are known, and equal. */
static bool is_known(const Half *half, int64_t start, const uint8_t *bytes, uint32_t length) {
    int64_t end = start + length;
    if (!half->history_count || half->history[0].start > start)
        return false;
    for (uint32_t at = half->history_count; at--;) {
        const Piece *piece = &half->history[at];
        int64_t low = most(piece->start, start), high = piece->start + piece->length;
        if (high > end)
            high = end;
        if (low < high && memcmp(bytes + (low - start), piece->bytes + (low - piece->start), (size_t)(high - low)))
            return false;
    }
    return true;
}

static int deliver(Kernel *kernel, Flow *flow, int from, const uint8_t *bytes, uint32_t length, const Segment *at) {
    Half *half = &flow->half[from];
    int why = stream_take(kernel, flow, from, bytes, length, at);
    if (why)
        return why;
    if (!remember(half, bytes, length))
        return UNREADABLE;
    half->offset += length;
    half->sequence += length;
    half->deadline = NEVER;
    return 0;
}

static int drain(Kernel *kernel, Flow *flow, int from, const Segment *at) {
    Half *half = &flow->half[from];
    uint32_t count = 0;
    int64_t end = half->offset;
    while (count < half->waiting_count && half->waiting[count].start == end)
        end += half->waiting[count++].length;
    if (count && flow->is_ready && kernel->running && kernel->feed &&
        event_segment(kernel, flow, from, end, at->acknowledged, at))
        return -1;
    count = 0;
    while (count < half->waiting_count && half->waiting[count].start == half->offset) {
        Piece piece = half->waiting[count++];
        int why;
        /* Python reads what was waiting in one piece. */
        if (count > 1 && !flow->is_ready)
            return WAITING;
        why = deliver(kernel, flow, from, piece.bytes, piece.length, at);
        if (why)
            return why;
        half->waiting_bytes -= piece.length;
        kernel->held_bytes -= piece.length;
    }
    if (count) {
        half->waiting_count -= count;
        memmove(half->waiting, half->waiting + count, half->waiting_count * sizeof *half->waiting);
    }
    if (half->offset == half->fin && half->state == OPEN) {
        half->state = ENDED;
        return host_ended(kernel, flow, from, "fin", half->fin_frame, half->fin_ns);
    }
    return 0;
}

/* Adds a segment that is late, early or repeated. */
static int insert(Kernel *kernel, Half *half, int64_t start, const Segment *segment) {
    const uint8_t *bytes = segment->payload;
    uint32_t length = segment->length, at = 0, repeated = 0;
    bool is_new = false;
    if (start < half->offset) {
        repeated = (uint32_t)(half->offset - start < length ? half->offset - start : length);
        if (!is_known(half, start, bytes, repeated))
            return OVERLAP;
        bytes += repeated;
        length -= repeated;
        start += repeated;
    }
    if (length) {
        while (at < half->waiting_count && half->waiting[at].start + half->waiting[at].length <= start)
            at++;
        if (at < half->waiting_count && half->waiting[at].start < start + length) {
            const Piece *piece = &half->waiting[at];
            if (start < piece->start || start + length > piece->start + piece->length ||
                memcmp(bytes, piece->bytes + (start - piece->start), length))
                return OVERLAP;
            repeated += length;
        } else {
            uint32_t room = half->waiting_room;
            if (half->waiting_count >= MAX_WAITING || half->waiting_bytes + length > MAX_WAITING_BYTES ||
                !make_room(&half->waiting, &room, half->waiting_count + 1))
                return LARGE;
            half->waiting_room = room;
            memmove(half->waiting + at + 1, half->waiting + at, (half->waiting_count - at) * sizeof *half->waiting);
            half->waiting[at] = (Piece){start, length, bytes};
            half->waiting_count++;
            half->waiting_bytes += length;
            kernel->held_bytes += length;
            is_new = true;
        }
    }
    if (repeated) {
        half->retransmitted_segments++;
        half->retransmitted_bytes += repeated;
    }
    if (!is_new)
        half->duplicate_segments++;
    return 0;
}

static int64_t hole_end(const Half *half) {
    if (half->state == ENDED || half->state == RESET)
        return -1;
    if (half->waiting_count)
        return half->waiting[0].start;
    if (half->fin >= 0)
        return half->fin;
    return half->sent > half->offset + 1 ? half->sent : -1;
}

static void settle(Half *half, int64_t now) {
    int64_t end = hole_end(half);
    if (end >= 0 && half->acknowledged >= end)
        half->deadline = half->deadline < now + PROVEN_WAIT_NS ? half->deadline : now + PROVEN_WAIT_NS;
    else
        half->deadline = NEVER;
}

static bool is_clear(const Half *half) { return half->state == OPEN && hole_end(half) < 0; }

/* Whether all bytes of a segment are known, so that another tap may have captured it a second time. */
static bool may_be_copy(const Half *half, int64_t start, const Segment *segment) {
    if (start + segment->length <= half->offset)
        return true;
    for (uint32_t at = 0; at < half->waiting_count; at++) {
        const Piece *piece = &half->waiting[at];
        if (piece->start <= start && start + segment->length <= piece->start + piece->length)
            return true;
    }
    return false;
}

/* Whether data looks like the first bytes of a connection (`flow_identity.beginning_kind`), or nearly. */
static bool is_beginning(const Segment *segment) {
    const uint8_t *bytes = segment->payload;
    if (bytes[0] == 0x10 || (bytes[0] == 0x20 && segment->length >= 4 && bytes[1] >= 2 && bytes[2] <= 1))
        return true;
    if (segment->length >= 2 && bytes[0] == 0x16 && bytes[1] == 3)
        return true;
    return segment->length >= 5 && (!memcmp(bytes, "GET /", 5) || !memcmp(bytes, "HTTP/", 5));
}

/* A segment that was captured twice only counts. */
static int take_copy(Kernel *kernel, Flow *flow, int from, int64_t start, const Segment *segment) {
    Half *half = &flow->half[from];
    if (segment->flags & FIN || (start < half->offset && start + segment->length > half->offset))
        return COPY;
    if (start < half->offset && !is_known(half, start, segment->payload, segment->length))
        return COPY;
    for (uint32_t at = 0; start >= half->offset && at < half->waiting_count; at++) {
        const Piece *piece = &half->waiting[at];
        if (piece->start <= start && start + segment->length <= piece->start + piece->length &&
            memcmp(segment->payload, piece->bytes + (start - piece->start), segment->length))
            return COPY;
    }
    half->copied_segments++;
    flow->last_frame = segment->frame;
    flow->last_ns = segment->ns;
    settle(half, segment->ns);
    settle(&flow->half[!from], segment->ns);
    return host_copied(kernel, flow);
}

static int take_handshake(Kernel *kernel, Flow *flow, int from, const Segment *segment) {
    Half *half = &flow->half[from], *peer = &flow->half[!from];
    uint8_t flags = segment->flags & (SYN | ACK | FIN | RST);
    uint32_t stamp = 0;
    bool stamped = time_stamp(segment->options, segment->options_length, &stamp);
    if (segment->length || !segment->window)
        return HANDSHAKE;
    if (from == INITIATOR && flags == SYN) {
        if (half->state == OPEN) { /* sent again */
            if (half->initial != segment->sequence || segment->ns - flow->last_ns <= TAP_NS || stamped != half->stamped)
                return HANDSHAKE;
        } else {
            int why;
            flow->first_frame = segment->frame;
            flow->opened_ns = segment->ns;
            half->fin = peer->fin = -1;
            half->deadline = peer->deadline = NEVER;
            flow->last_frame = segment->frame;
            flow->last_ns = segment->ns;
            half->initial = segment->sequence;
            why = host_opened(kernel, flow, segment);
            if (why)
                return why;
        }
    } else if (from == RESPONDER && flags == (SYN | ACK)) {
        if (peer->state != OPEN || segment->acknowledgment != peer->initial + 1)
            return HANDSHAKE;
    } else {
        return flow->first_frame ? HANDSHAKE : JOINED;
    }
    if (half->state != OPEN) {
        half->state = OPEN;
        half->initial = segment->sequence;
        half->sequence = segment->sequence + 1;
        half->stamped = stamped;
        half->first_stamp = half->last_stamp = stamp;
        half->first_stamp_ns = half->last_stamp_ns = segment->ns;
    }
    half->empty_segments++;
    flow->last_frame = segment->frame;
    flow->last_ns = segment->ns;
    return 0;
}

static void acknowledge(Half *peer, int64_t position) {
    if (position > peer->acknowledged && position <= most(most(peer->offset, peer->sent), peer->acknowledged) + START_WINDOW)
        peer->acknowledged = position;
}

static int close_flow(Kernel *kernel, Flow *flow, const char *how, uint32_t frame, int64_t ns) {
    flow->closed = 1;
    flow->closed_ns = ns;
    return host_closed(kernel, flow, how, frame, ns);
}

static int take_reset(Kernel *kernel, Flow *flow, int from, int64_t start, int64_t position, const Segment *segment) {
    Half *half = &flow->half[from], *peer = &flow->half[!from];
    int64_t low = half->acknowledged < half->offset ? half->acknowledged : half->offset;
    int why;
    if (segment->length || start < low || start > most(most(half->offset, half->sent), half->acknowledged) + RESET_WINDOW)
        return RESETTING;
    if (start - half->offset > (half->offset == half->fin) || half->waiting_count || peer->waiting_count)
        return RESETTING;
    if (segment->flags & ACK && peer->state == OPEN && position > peer->offset)
        return RESETTING;
    why = host_reset(kernel, flow, segment, from);
    if (why)
        return why;
    half->empty_segments++;
    if (segment->flags & ACK)
        acknowledge(peer, position);
    for (int side = 0; side < 2; side++) {
        Half *each = &flow->half[side];
        if (hole_end(each) >= 0 || (each->state == OPEN && each->acknowledged - each->offset > 1))
            return GAP;
    }
    for (int side = from;; side = !from) {
        Half *each = &flow->half[side];
        if (each->state == OPEN) {
            each->state = RESET;
            why = host_ended(kernel, flow, side, "reset", segment->frame, segment->ns);
            if (why)
                return why;
        }
        if (side != from)
            break;
    }
    return close_flow(kernel, flow, "reset", segment->frame, segment->ns);
}

int tcp_take(Kernel *kernel, Flow *flow, int from, Segment *segment) {
    Half *half = &flow->half[from], *peer = &flow->half[!from];
    uint8_t flags = segment->flags & (SYN | ACK | FIN | RST);
    int64_t now = most(kernel->latest_ns, segment->ns), start, position;
    bool is_direct, stamped = false;
    uint32_t stamp = 0, length = segment->length;
    int why;
    if (segment->wrong)
        return CHECKSUM;
    if (segment->tag != flow->tag)
        return TAGS;
    if (flow->closed) {
        if (length || flags & SYN || now > most(flow->closed_ns, flow->last_ns) + LINGER_NS)
            return REUSED;
        flow->last_ns = segment->ns;
        return flags & RST ? host_reset(kernel, flow, segment, -1) : 0;
    }
    if (flow->first_frame && (now > flow->last_ns + IDLE_NS || now >= half->deadline || now >= peer->deadline))
        return TIMEOUT;
    if (half->state == UNSEEN || peer->state == UNSEEN)
        return take_handshake(kernel, flow, from, segment);
    start = half->offset + (int32_t)(segment->sequence - half->sequence);
    position = peer->offset + (int32_t)(segment->acknowledgment - peer->sequence);
    if (flags & SYN || !(flags & (ACK | RST)))
        return HANDSHAKE;
    if (start < half->offset - START_WINDOW || start > half->offset + START_WINDOW)
        return NUMBERS;
    if (flags & ACK && (position < peer->offset - START_WINDOW || position > peer->offset + START_WINDOW))
        return NUMBERS;
    if (flags & RST)  {
        int64_t before = flow->last_ns;
        uint32_t frame_before = flow->last_frame;
        flow->last_frame = segment->frame;
        flow->last_ns = segment->ns;
        why = take_reset(kernel, flow, from, start, position, segment);
        if (why > 0) {
            flow->last_ns = before;
            flow->last_frame = frame_before;
        }
        return why;
    }
    if (!segment->window)
        return WINDOW; /* whoever waits for it to open is excused by the rules, in Python */
    is_direct = flags == ACK && start == half->offset && is_clear(half) && is_clear(peer);
    if (length) {
        stamped = time_stamp(segment->options, segment->options_length, &stamp);
        if (stamped != half->stamped)
            return STAMPS;
        if (!is_direct) {
            int32_t ticks = stamped ? (int32_t)(stamp - half->last_stamp) : 0;
            bool is_later = stamped && ticks > 0;
            if (start < 0)
                return NUMBERS;
            if (!start && half->offset) {
                /* The first bytes again: only a later time stamp proves that this is not another connection. */
                bool is_now = is_later && ticks * (NS / 1000) <= segment->ns - half->last_stamp_ns + NS;
                bool is_near = position <= most(most(peer->offset, peer->sent), peer->acknowledged) + BEGIN_WINDOW;
                if (is_beginning(segment) && !(is_now && is_near))
                    return BEGINNING;
            } else if (start && is_beginning(segment)) {
                return BEGINNING;
            }
            if (start != half->offset && stamped && ticks <= 0 && (int32_t)(stamp - half->first_stamp) < 0)
                return STAMPS;
            if (segment->ns - flow->last_ns <= TAP_NS && !is_later && may_be_copy(half, start, segment))
                return take_copy(kernel, flow, from, start, segment);
        }
    }
    flow->last_frame = segment->frame;
    flow->last_ns = segment->ns;
    acknowledge(peer, position);
    segment->acknowledged = start == half->offset && !half->waiting_count ? position : -1;
    if (length) {
        if (start >= half->offset) {
            half->last_stamp = stamp;
            half->last_stamp_ns = segment->ns;
        }
        half->data_segments++;
        if (start == half->offset && !half->waiting_count && flow->is_ready && kernel->running && kernel->feed &&
            !(half->fin >= 0 && half->fin < start + length) &&
            event_segment(kernel, flow, from, start + length, position, segment))
            return -1;
        if (is_direct)
            return deliver(kernel, flow, from, segment->payload, length, segment);
        if (length == 1 && (start == half->offset - 1 || (start < half->offset && !segment->payload[0]))) {
            half->keep_alive_probes++;
        } else {
            if (half->fin >= 0 && half->fin < start + length)
                return OVERLAP;
            half->sent = most(half->sent, start + length);
            if (start == half->offset && !half->waiting_count) {
                why = deliver(kernel, flow, from, segment->payload, length, segment);
            } else {
                half->out_of_order_segments += start > half->offset;
                why = insert(kernel, half, start, segment);
            }
            if (!why)
                why = drain(kernel, flow, from, segment);
            if (why)
                return why;
        }
    } else if (flags & FIN) {
        half->empty_segments++;
    } else {
        half->empty_segments++;
        if (start == half->offset - 1 && !(is_direct))
            half->keep_alive_probes++;
        else if (start > half->offset && half->fin < 0)
            half->sent = most(half->sent, start);
        if (is_direct)
            return 0;
    }
    if (flags & FIN) {
        int64_t at = start + length, known = half->offset;
        if (half->waiting_count) {
            const Piece *last = &half->waiting[half->waiting_count - 1];
            known = last->start + last->length;
        }
        if (half->state == OPEN && half->fin < 0 && known <= at) {
            half->fin = at;
            half->fin_frame = segment->frame;
            half->fin_ns = segment->ns;
            why = drain(kernel, flow, from, segment);
            if (why)
                return why;
        }
    }
    settle(half, segment->ns);
    settle(peer, segment->ns);
    if (half->state == ENDED && peer->state == ENDED)
        return close_flow(kernel, flow, "fin", segment->frame, segment->ns);
    return 0;
}

/* The end of the capture. */
int tcp_end(Kernel *kernel, Flow *flow) {
    if (kernel->latest_ns > flow->last_ns + IDLE_NS)
        return TIMEOUT;
    for (int side = 0; side < 2; side++) {
        Half *half = &flow->half[side];
        if (half->state == UNSEEN)
            return HANDSHAKE;
        if (kernel->latest_ns >= half->deadline)
            return TIMEOUT;
        if (hole_end(half) >= 0 || (half->state == OPEN && half->acknowledged - half->offset > 1))
            return GAP;
    }
    return close_flow(kernel, flow, "capture_end", flow->last_frame, flow->last_ns);
}
