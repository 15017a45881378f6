/* Writes the JSON lines of frequent packets, as `report.jsonl.PacketLines` does, and collects all output in order.

Topics and property blocks become JSON in Python once, and payloads that may contain a secret each time. */

#include "kernel.h"
#include <strings.h>

#define FLUSH_AT (1u << 16)
#define REACH 4096u /* bytes that are searched after the shown ones, as in `secrets.forms` */
#define MAX_TEXTS 100000

#define MAX_PAYLOADS (1 << 20) /* bytes of payloads that Python has shown, as in `report.jsonl` */

enum { PUBLISH = 3, SUBSCRIBE = 8, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ };

static const char *const NAMES[16] = {
    "reserved", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe", "suback",
    "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth",
};

static bool out_room(Kernel *kernel, size_t more) {
    if (kernel->out_size + more > kernel->out_room) {
        size_t room = kernel->out_size + more + FLUSH_AT;
        char *out = PyMem_RawRealloc(kernel->out, room);
        if (!out) {
            PyErr_NoMemory();
            return false;
        }
        kernel->out = out;
        kernel->out_room = room;
    }
    return true;
}

int out_flush(Kernel *kernel) {
    PyObject *data, *result;
    if (!kernel->out_size)
        return 0;
    data = PyBytes_FromStringAndSize(kernel->out, (Py_ssize_t)kernel->out_size);
    if (!data)
        return -1;
    kernel->out_size = 0; /* before writing: an interruption must not write twice */
    result = PyObject_CallMethod(kernel->sink, "write", "O", data);
    Py_DECREF(data);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Adds a part of a line. */
static int append(Kernel *kernel, const char *bytes, size_t length) {
    if (!out_room(kernel, length))
        return -1;
    memcpy(kernel->out + kernel->out_size, bytes, length);
    kernel->out_size += length;
    return 0;
}

static int end_line(Kernel *kernel) { return kernel->out_size > FLUSH_AT ? out_flush(kernel) : 0; }

int out_append(Kernel *kernel, const char *bytes, size_t length) {
    return append(kernel, bytes, length) ? -1 : end_line(kernel);
}

static int append_whole(Kernel *kernel, PyObject *bytes) {
    return append(kernel, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
}

static char *put_text(char *out, const char *text) {
    size_t length = strlen(text);
    memcpy(out, text, length);
    return out + length;
}

static char *put_bytes(char *out, PyObject *bytes) {
    memcpy(out, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    return out + PyBytes_GET_SIZE(bytes);
}

static char *put_number(char *out, uint64_t value) {
    char digits[24];
    int count = 0;
    do
        digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count)
        *out++ = digits[--count];
    return out;
}

/* JSON of a text or a block from a table, made by a method of the host if it is new; borrowed. */
static PyObject *cached(Kernel *kernel, PyObject *table, const char *method, const uint8_t *bytes, uint32_t length) {
    PyObject *key = PyBytes_FromStringAndSize((const char *)bytes, length), *value;
    if (!key)
        return NULL;
    value = PyDict_GetItemWithError(table, key);
    if (!value && !PyErr_Occurred()) {
        value = PyObject_CallMethod(kernel->host, method, "O", key);
        if (value && !PyBytes_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "the host of the kernel must return bytes");
            Py_CLEAR(value);
        }
        if (value) {
            if (PyDict_GET_SIZE(table) >= MAX_TEXTS)
                PyDict_Clear(table);
            if (PyDict_SetItem(table, key, value) < 0)
                Py_CLEAR(value);
            else
                Py_DECREF(value); /* the table has it */
        }
    }
    Py_DECREF(key);
    return value;
}

/* Whether text is free of control and format characters; every byte sequence is valid UTF-8. */
enum { CLEAN, BINARY, HARMFUL };

static int judge_text(const uint8_t *bytes, uint32_t length) {
    int how = CLEAN;
    for (uint32_t at = 0; at < length;) {
        uint32_t first = bytes[at], code;
        if (first < 0x80) {
            if ((first < 0x20 && first != '\t' && first != '\n' && first != '\r') || first == 0x7F)
                return BINARY;
            at++;
            continue;
        }
        if (first < 0xE0) {
            code = (first & 0x1F) << 6 | (bytes[at + 1] & 0x3F);
            at += 2;
        } else if (first < 0xF0) {
            code = (first & 0x0F) << 12 | (bytes[at + 1] & 0x3Fu) << 6 | (bytes[at + 2] & 0x3F);
            at += 3;
        } else {
            code = 0x10000;
            if (first == 0xF3)
                how = HARMFUL; /* may be a tag character */
            at += 4;
        }
        if (code < 0xA0)
            return BINARY;
        if (code == 0xAD || (code >= 0x600 && code <= 0x605) || code == 0x61C || code == 0x6DD || code == 0x70F ||
            code == 0x180E || (code >= 0x200B && code <= 0x206F) || code == 0xFEFF || (code >= 0xFFF9 && code <= 0xFFFB))
            how = HARMFUL;
    }
    return how;
}

/* The payload with its length, up to the resolved topic. */
static int put_payload(Kernel *kernel, const Packet *packet) {
    const uint8_t *bytes = packet->payload;
    uint32_t length = packet->payload_length, shown = length, searched = length;
    int how = BINARY;
    char *out;
    if ((uint32_t)utf8_end(bytes, length) == length)
        how = judge_text(bytes, length);
    if (length > kernel->payload_limit) {
        shown = how == CLEAN ? (uint32_t)utf8_end(bytes, kernel->payload_limit) : kernel->payload_limit;
        searched = length - kernel->payload_limit < REACH ? length : kernel->payload_limit + REACH;
    }
    if (how == HARMFUL || (length >= 3 && !kernel->shows_secrets && is_suspicious(kernel, bytes, searched))) {
        PyObject *value;
        int failed;
        Py_ssize_t count;
        if (kernel->payload_bytes > MAX_PAYLOADS) {
            PyDict_Clear(kernel->payloads);
            kernel->payload_bytes = 0;
        }
        count = PyDict_GET_SIZE(kernel->payloads);
        value = cached(kernel, kernel->payloads, "payload", bytes, length);
        if (value && PyDict_GET_SIZE(kernel->payloads) > count)
            kernel->payload_bytes += length + PyBytes_GET_SIZE(value);
        failed = !value || !out_room(kernel, (size_t)PyBytes_GET_SIZE(value));
        if (!failed)
            kernel->out_size = (size_t)(put_bytes(kernel->out + kernel->out_size, value) - kernel->out);
        return failed ? -1 : 0;
    }
    if (!out_room(kernel, 2 * (size_t)shown + 100))
        return -1;
    out = put_text(kernel->out + kernel->out_size, "{\"length\":");
    out = put_number(out, length);
    if (how == BINARY) {
        static const char DIGITS[] = "0123456789abcdef";
        out = put_text(out, ",\"hex\":\"");
        for (uint32_t at = 0; at < shown; at++) {
            *out++ = DIGITS[bytes[at] >> 4];
            *out++ = DIGITS[bytes[at] & 15];
        }
    } else {
        out = put_text(out, ",\"text\":\"");
        for (uint32_t at = 0; at < shown; at++) {
            uint8_t byte = bytes[at];
            if (byte == '"' || byte == '\\' || byte < 0x20) {
                *out++ = '\\';
                byte = byte == '\t' ? 't' : byte == '\n' ? 'n' : byte == '\r' ? 'r' : byte;
            }
            *out++ = (char)byte;
        }
    }
    out = put_text(out, shown < length ? "\",\"truncated\":true}},\"topic\":" : "\"}},\"topic\":");
    kernel->out_size = (size_t)(out - kernel->out);
    return 0;
}

/* Changes to another second; the host knows its text. */
static int turn(Kernel *kernel, int64_t ns) {
    PyObject *parts = PyObject_CallMethod(kernel->host, "turn", "L", (long long)ns), *before, *after;
    long long second_ns;
    int divided, is_right;
    if (!parts)
        return -1;
    is_right = PyArg_ParseTuple(parts, "LSSp", &second_ns, &before, &after, &divided);
    if (is_right) {
        Py_INCREF(before);
        Py_XSETREF(kernel->time_before, before);
        Py_INCREF(after);
        Py_XSETREF(kernel->time_after, after);
        kernel->second_ns = second_ns;
        kernel->divided = divided;
    }
    Py_DECREF(parts);
    return is_right ? 0 : -1;
}

int alias_set(Half *half, uint32_t alias, PyObject *topic) {
    if (alias >= half->alias_room) {
        uint32_t room = alias + 8;
        PyObject **aliases = PyMem_RawRealloc(half->aliases, room * sizeof *aliases);
        if (!aliases) {
            PyErr_NoMemory();
            return -1;
        }
        memset(aliases + half->alias_room, 0, (room - half->alias_room) * sizeof *aliases);
        half->aliases = aliases;
        half->alias_room = room;
    }
    Py_INCREF(topic);
    Py_XSETREF(half->aliases[alias], topic);
    return 0;
}

/* Whether a text has no sign of a credential, and needs no escape in JSON; `secrets.credentials` has the signs. */
static bool is_plain(const uint8_t *bytes, uint32_t length) {
    for (uint32_t at = 0; at < length; at++) {
        uint8_t byte = bytes[at], low = byte | 0x20;
        if (!(low >= 'a' && low <= 'z') && !(byte >= '0' && byte <= '9') && !(byte && strchr("_-./+", byte)))
            return false;
        if ((low == 'e' && length - at >= 5 && !strncasecmp((const char *)bytes + at, "earer", 5)) ||
            (low == 'a' && length - at >= 4 && !strncasecmp((const char *)bytes + at, "asic", 4)))
            return false;
    }
    return true;
}

static char *put_pair(char *out, const uint8_t *at, uint32_t name, uint32_t value) {
    out = put_text(out, "{\"name\":\"");
    memcpy(out, at + 2, name);
    out = put_text(out + name, "\",\"value\":\"");
    memcpy(out, at + 4 + name, value);
    return put_text(out + value, "\"}");
}

/* The properties of a PUBLISH with plain values, each at most once but User Properties; false for all others. */
static bool put_block(Kernel *kernel, const Packet *packet) {
    const uint8_t *at = packet->block, *end = at + packet->block_length;
    uint64_t known = 0;
    char *out;
    if (kernel->has_stems || packet->block_length > 2000 || !out_room(kernel, 30 * (size_t)packet->block_length + 100))
        return false;
    out = put_text(kernel->out + kernel->out_size, ",\"properties\":{");
    while (at < end) {
        uint8_t identifier = *at++;
        uint32_t number = 0, shift = 0;
        if (known >> identifier & 1) {
            if (identifier != 0x26)
                return false;
            at += 2 + ((uint32_t)at[0] << 8 | at[1]);
            at += 2 + ((uint32_t)at[0] << 8 | at[1]);
            continue; /* it is in the list of the first one */
        }
        if (known)
            *out++ = ',';
        known |= 1ull << identifier;
        switch (identifier) {
        case 0x01:
            out = put_number(put_text(out, "\"payload_format_indicator\":"), *at++);
            break;
        case 0x02:
            number = (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
            out = put_number(put_text(out, "\"message_expiry_interval\":"), number);
            at += 4;
            break;
        case 0x0B:
            do {
                number |= (uint32_t)(*at & 0x7F) << shift;
                shift += 7;
            } while (*at++ & 0x80);
            out = put_text(put_number(put_text(out, "\"subscription_identifier\":["), number), "]");
            break;
        case 0x23:
            out = put_number(put_text(out, "\"topic_alias\":"), (uint32_t)at[0] << 8 | at[1]);
            at += 2;
            break;
        case 0x03:
            number = (uint32_t)at[0] << 8 | at[1];
            if (!is_plain(at + 2, number))
                return false;
            out = put_text(out, "\"content_type\":\"");
            memcpy(out, at + 2, number);
            out = put_text(out + number, "\"");
            at += 2 + number;
            break;
        case 0x26:
            out = put_text(out, "\"user_property\":[");
            for (const uint8_t *next = at - 1; next < end;) {
                uint32_t name, value;
                PyObject *verdict;
                switch (*next++) {
                case 0x01: next += 1; continue;
                case 0x02: next += 4; continue;
                case 0x23: next += 2; continue;
                case 0x0B:
                    while (*next++ & 0x80)
                        ;
                    continue;
                case 0x03: next += 2 + ((uint32_t)next[0] << 8 | next[1]); continue;
                case 0x26: break;
                default: return false;
                }
                name = (uint32_t)next[0] << 8 | next[1];
                value = (uint32_t)next[2 + name] << 8 | next[3 + name];
                if (!is_plain(next + 2, name) || !is_plain(next + 4 + name, value))
                    return false;
                verdict = cached(kernel, kernel->names, "names_secret", next + 2, name);
                if (!verdict || PyBytes_GET_SIZE(verdict))
                    return false; /* the caller looks for an exception */
                if (out[-1] != '[')
                    *out++ = ',';
                out = put_pair(out, next, name, value);
                next += 4 + name + value;
            }
            *out++ = ']';
            at += 2 + ((uint32_t)at[0] << 8 | at[1]);
            at += 2 + ((uint32_t)at[0] << 8 | at[1]);
            break;
        default:
            return false;
        }
    }
    out = put_text(out, "},\"payload\":");
    kernel->out_size = (size_t)(out - kernel->out);
    return true;
}

static int write_publish(Kernel *kernel, Half *half, const Packet *packet, char *out) {
    uint8_t flags = packet->raw[0];
    PyObject *topic, *resolved = NULL, *block;
    kernel->out_size = (size_t)(out - kernel->out);
    topic = cached(kernel, kernel->topics, "topic", packet->topic, packet->topic_length);
    if (!topic)
        return -1;
    Py_INCREF(topic);
    if (packet->topic_length)
        resolved = topic;
    else if (packet->alias >= 0 && (uint32_t)packet->alias < half->alias_room)
        resolved = half->aliases[packet->alias];
    if (!out_room(kernel, (size_t)PyBytes_GET_SIZE(topic) + 200))
        goto failed;
    out = put_text(kernel->out + kernel->out_size, "{\"dup\":");
    out = put_text(out, flags & 8 ? "true,\"qos\":" : "false,\"qos\":");
    *out++ = (char)('0' + (flags >> 1 & 3));
    out = put_text(out, flags & 1 ? ",\"retain\":true,\"topic_name\":" : ",\"retain\":false,\"topic_name\":");
    out = put_bytes(out, topic);
    out = put_text(out, ",\"packet_identifier\":");
    out = packet->packet_identifier < 0 ? put_text(out, "null") : put_number(out, (uint64_t)packet->packet_identifier);
    if (!packet->block_length)
        out = put_text(out, packet->version == 5 ? ",\"properties\":{},\"payload\":" : ",\"payload\":");
    kernel->out_size = (size_t)(out - kernel->out);
    if (packet->block_length && !put_block(kernel, packet)) {
        block = PyErr_Occurred() ? NULL : cached(kernel, kernel->blocks, "block", packet->block, packet->block_length);
        if (!block || append_whole(kernel, block))
            goto failed;
    }
    if (put_payload(kernel, packet))
        goto failed;
    if (resolved ? append_whole(kernel, resolved) : append(kernel, "null", 4))
        goto failed;
    if (append(kernel, "}\n", 2))
        goto failed;
    if (packet->alias >= 0 && packet->topic_length && alias_set(half, (uint32_t)packet->alias, topic))
        goto failed;
    Py_DECREF(topic);
    return 0;
failed:
    Py_DECREF(topic);
    return -1;
}

/* A SUBSCRIBE, UNSUBSCRIBE, or an answer to one; without properties. */
static int write_request(Kernel *kernel, const Packet *packet, char *out) {
    const uint8_t *at = packet->payload, *end = at + packet->payload_length;
    bool asks = packet->kind == SUBSCRIBE || packet->kind == UNSUBSCRIBE, is_first = true;
    out = put_text(out, "{\"packet_identifier\":");
    out = put_number(out, (uint64_t)packet->packet_identifier);
    if (packet->version == 5)
        out = put_text(out, ",\"properties\":{}");
    kernel->out_size = (size_t)(out - kernel->out);
    if (packet->kind == UNSUBACK && packet->version < 5)
        return append(kernel, "}}\n", 3);
    if (!out_room(kernel, 100 + (asks ? 0 : 60 * (size_t)packet->payload_length)))
        return -1;
    out = kernel->out + kernel->out_size;
    if (!asks) {
        out = put_text(out, ",\"reason_codes\":[");
        for (const uint8_t *code = at; code < end; code++) {
            out = put_number(out, *code);
            *out++ = code + 1 < end ? ',' : ']';
        }
        if (at == end)
            *out++ = ']';
        out = put_text(out, ",\"reasons\":[");
        for (const uint8_t *code = at; code < end; code++) {
            out = put_bytes(out, PyTuple_GET_ITEM(kernel->reason_names[packet->kind == UNSUBACK][packet->version == 5], *code));
            *out++ = code + 1 < end ? ',' : ']';
        }
        if (at == end)
            *out++ = ']';
        out = put_text(out, "}}\n");
        kernel->out_size = (size_t)(out - kernel->out);
        return 0;
    }
    out = put_text(out, packet->kind == SUBSCRIBE ? ",\"subscriptions\":[" : ",\"topic_filters\":[");
    kernel->out_size = (size_t)(out - kernel->out);
    while (at < end) {
        uint32_t length = (uint32_t)at[0] << 8 | at[1];
        PyObject *filter = cached(kernel, kernel->topics, "topic", at + 2, length);
        if (!filter || !out_room(kernel, (size_t)PyBytes_GET_SIZE(filter) + 200))
            return -1;
        at += 2 + length;
        out = kernel->out + kernel->out_size;
        if (!is_first)
            *out++ = ',';
        is_first = false;
        if (packet->kind == SUBSCRIBE)
            out = put_text(out, "{\"topic_filter\":");
        out = put_bytes(out, filter);
        if (packet->kind == SUBSCRIBE) {
            uint8_t options = *at++;
            out = put_text(out, ",\"maximum_qos\":");
            *out++ = (char)('0' + (options & 3));
            if (packet->version == 5) {
                out = put_text(out, options & 4 ? ",\"no_local\":true" : ",\"no_local\":false");
                out = put_text(out, options & 8 ? ",\"retain_as_published\":true" : ",\"retain_as_published\":false");
                out = put_text(out, ",\"retain_handling\":");
                *out++ = (char)('0' + (options >> 4 & 3));
            }
            *out++ = '}';
        }
        kernel->out_size = (size_t)(out - kernel->out);
    }
    return append(kernel, "]}}\n", 4);
}

int line_write(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at) {
    Half *half = &flow->half[from];
    int64_t past = at->ns - kernel->second_ns;
    uint32_t fraction;
    char *out;
    if (past < 0 || past >= NS || !kernel->time_before) {
        if (turn(kernel, at->ns))
            return -1;
        past = at->ns - kernel->second_ns;
    }
    if (!out_room(kernel, (size_t)PyBytes_GET_SIZE(half->naming) + (size_t)PyBytes_GET_SIZE(kernel->opening) + 600))
        return -1;
    out = put_bytes(kernel->out + kernel->out_size, kernel->opening);
    out = put_number(out, at->frame);
    out = put_bytes(out, kernel->time_before);
    fraction = (uint32_t)past;
    for (int digit = 8; digit >= 0; digit--) {
        out[digit] = (char)('0' + fraction % 10);
        fraction /= 10;
    }
    out += 9;
    out = put_bytes(out, kernel->time_after);
    if (kernel->divided) {
        memcpy(out, out - 9 - PyBytes_GET_SIZE(kernel->time_after), 9);
        out += 9;
    } else {
        if (at->ns < 0)
            *out++ = '-';
        out = put_number(out, at->ns < 0 ? -(uint64_t)at->ns : (uint64_t)at->ns);
    }
    out = put_bytes(out, half->naming);
    out = put_number(out, kernel->packets);
    out = put_text(out, ",\"type\":\"");
    out = put_text(out, NAMES[packet->kind]);
    out = put_text(out, "\",\"length\":");
    out = put_number(out, packet->length);
    out = put_text(out, ",\"remaining_length\":");
    out = put_number(out, packet->length - packet->header);
    out = put_text(out, ",\"");
    out = put_text(out, NAMES[packet->kind]);
    out = put_text(out, "\":");
    if (packet->kind == PUBLISH) {
        return write_publish(kernel, half, packet, out) ? -1 : end_line(kernel);
    }
    if (packet->kind >= SUBSCRIBE && packet->kind <= UNSUBACK)
        return write_request(kernel, packet, out) ? -1 : end_line(kernel);
    if (packet->kind >= PINGREQ) {
        out = put_text(out, "{}}\n");
    } else {
        out = put_text(out, "{\"packet_identifier\":");
        out = put_number(out, (uint64_t)packet->packet_identifier);
        if (packet->version == 5) {
            *out++ = ',';
            out = put_bytes(out, PyTuple_GET_ITEM(kernel->outcomes, packet->reason < 0 ? 0 : packet->reason));
        } else {
            out = put_text(out, "}}\n");
        }
    }
    kernel->out_size = (size_t)(out - kernel->out);
    return end_line(kernel);
}
