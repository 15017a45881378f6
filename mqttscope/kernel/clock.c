/* Whether an interval of a second or more was silence: the decision of `dissect.clock_watch`, where it is certain.

The segments after the interval are looked at before they are followed, as Python does.  The interval was silence if a
clock of an ordinary connection shows it, or if the segments that decide contain no sign against it.  Anything else, such
as a time that goes back, is for Python. */

#include "kernel.h"

#define STEP_NS NS
#define SLACK_NS (NS / 5)
#define SETTLED_NS (NS / 5)
#define AHEAD_NS NS
#define SENT_AGAIN_NS (60 * NS)
#define ENOUGH_AHEAD 16
#define START_WINDOW (1 << 20)

enum { NONE, PASSED, CONTRADICTED, UNKNOWN };

static int64_t divide(int64_t number, int64_t by) {
    int64_t quotient = number / by;
    return number % by < 0 ? quotient - 1 : quotient;
}

static int64_t clamp(int64_t rate) { return rate < 1 ? 1 : rate > 1000000 ? 1000000 : rate; }

/* Evidence of the sender's clock about an interval of `jump_ns`. */
static int compare(const Half *half, const Segment *segment, int64_t jump_ns) {
    uint32_t stamp;
    int64_t ticks, total_ns, known, span_ns, low = 1, high = 1000000, most_ns, least_ns;
    int32_t distance = (int32_t)(segment->sequence - half->sequence);
    if (segment->flags & SYN || half->state == UNSEEN || !half->stamped)
        return NONE;
    if (!time_stamp(segment->options, segment->options_length, &stamp))
        return NONE;
    if (distance > START_WINDOW || distance < -START_WINDOW)
        return NONE;
    ticks = (int32_t)(stamp - half->last_stamp);
    total_ns = segment->ns - half->last_stamp_ns;
    known = (int32_t)(half->last_stamp - half->first_stamp);
    span_ns = half->last_stamp_ns - half->first_stamp_ns;
    if (known > 0 && span_ns > 0) {
        low = clamp(divide((known - 1) * NS, span_ns + SLACK_NS));
        high = span_ns > SLACK_NS ? clamp(divide((known + 1) * NS, span_ns - SLACK_NS) + 1) : 1000000;
    }
    if (ticks < 0)
        return low > 1 && divide((ticks - 1) * NS, low) <= total_ns && total_ns <= divide((ticks + 1) * NS, high) ? PASSED
                                                                                                               : NONE;
    most_ns = divide((ticks + 1) * NS, low);
    least_ns = divide((ticks > 1 ? ticks - 1 : 0) * NS, high);
    if (most_ns < total_ns - STEP_NS && total_ns - most_ns <= jump_ns)
        return CONTRADICTED;
    if (most_ns >= total_ns - STEP_NS && least_ns <= total_ns + STEP_NS && least_ns >= total_ns - STEP_NS)
        return PASSED;
    return NONE;
}

static int evidence_of(Kernel *kernel, const Segment *segment, int64_t jump_ns) {
    int from = INITIATOR, evidence;
    uint32_t stamp;
    Flow *flow = flow_find(kernel, segment->key, segment->key_length, &from);
    if (flow && !flow->odd && segment->tag == flow->tag) {
        evidence = flow->closed ? UNKNOWN : compare(&flow->half[from], segment, jump_ns);
        /* After a minute, an acknowledgment of data from just before the interval contradicts it. */
        return evidence == NONE && jump_ns >= SENT_AGAIN_NS ? UNKNOWN : evidence;
    }
    if (!flow && (segment->flags & (SYN | ACK)) == SYN)
        return NONE;
    return jump_ns >= SENT_AGAIN_NS || time_stamp(segment->options, segment->options_length, &stamp) ? UNKNOWN : NONE;
}

static int look_ahead(Kernel *kernel, Capture *ahead, const Segment *first, int64_t jump_ns) {
    Segment segment = *first;
    int64_t latest_ns = first->ns;
    bool is_unknown = false;
    int count = 0;
    if (jump_ns < 0)
        return 0;
    for (;;) {
        Frame frame;
        int evidence = evidence_of(kernel, &segment, jump_ns), kind;
        if (evidence == PASSED)
            return 1;
        if (evidence == CONTRADICTED)
            return 0;
        is_unknown |= evidence == UNKNOWN;
        count++;
        if (segment.ns > latest_ns)
            latest_ns = segment.ns;
        if (count >= ENOUGH_AHEAD || latest_ns - first->ns >= SETTLED_NS)
            return !is_unknown;
        do {
            if (capture_next(ahead, &frame) <= 0)
                return !is_unknown;
            kind = segment_of(&frame, &segment);
            if (kind == UNUSUAL) {
                bool is_segment = false;
                int why = host_unusual(kernel, &frame, &is_segment);
                if (why)
                    return why < 0 ? -1 : 0;
                if (is_segment)
                    return 0;
            }
        } while (kind != A_SEGMENT);
        /* The next interval, or a time that goes back. */
        if (segment.ns - latest_ns <= -STEP_NS)
            return 0;
        if (segment.ns - latest_ns >= STEP_NS || segment.ns - first->ns > AHEAD_NS)
            return !is_unknown;
    }
}

/* Whether the interval before a segment is silence; the reader is behind its frame.  -1 with an exception set. */
int clock_is_steady(Kernel *kernel, const Segment *first, int64_t jump_ns) {
    Capture ahead = kernel->capture;
    int result;
    if (capture_copy(&ahead))
        return 0;
    result = look_ahead(kernel, &ahead, first, jump_ns);
    capture_close(&ahead);
    return result;
}
