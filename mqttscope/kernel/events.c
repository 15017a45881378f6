/* Makes the events of frequent packets, as `dissect.fast_path` does, for readers that take events.

Packets and events are ordinary objects of Python, filled through their attributes.  What they change in a connection,
its own methods do. */

#include "kernel.h"

enum { PUBLISH = 3, PUBACK, PUBREC, PUBREL, PUBCOMP, PINGREQ = 12, PINGRESP };
#define MAX_TEXTS 10000

static const char *const NAMES[ATTRIBUTES] = {
    "dup", "qos", "retain", "topic_name", "packet_identifier", "properties", "payload", "raw", "header_flags", "missing",
    "reason_code", "connection", "direction", "number", "frame", "timestamp_ns", "capture", "packet", "topic",
    "stream_offset", "client_side", "server_side", "history", "apply", "resolve_topic", "segment",
};
enum {
    DUP, QOS, RETAIN, TOPIC_NAME, PACKET_IDENTIFIER, PROPERTIES, PAYLOAD, RAW, HEADER_FLAGS, MISSING, REASON_CODE, CONNECTION,
    DIRECTION, NUMBER, FRAME, TIMESTAMP_NS, CAPTURE, PACKET, TOPIC, STREAM_OFFSET, CLIENT_SIDE, SERVER_SIDE, HISTORY_OF, APPLY,
    RESOLVE_TOPIC, SEGMENT
};

int events_prepare(Kernel *kernel) {
    for (int at = 0; at < ATTRIBUTES; at++) {
        kernel->attributes[at] = PyUnicode_InternFromString(NAMES[at]);
        if (!kernel->attributes[at])
            return -1;
    }
    kernel->zero = PyLong_FromLong(0);
    kernel->empty_tuple = PyTuple_New(0);
    return kernel->zero && kernel->empty_tuple ? 0 : -1;
}

static int set(Kernel *kernel, PyObject *object, int attribute, PyObject *value) {
    return PyObject_SetAttr(object, kernel->attributes[attribute], value);
}

/* Sets an attribute and gives the value away. */
static int give(Kernel *kernel, PyObject *object, int attribute, PyObject *value) {
    int failed = !value || set(kernel, object, attribute, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

static PyObject *made(Kernel *kernel, PyObject *type) {
    return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, kernel->empty_tuple, NULL);
}

/* A text or block that recurs, made by a method of the host if it is new; borrowed. */
static PyObject *recurring(Kernel *kernel, PyObject *table, const char *method, const uint8_t *bytes, uint32_t length) {
    PyObject *key = PyBytes_FromStringAndSize((const char *)bytes, length), *value;
    if (!key)
        return NULL;
    value = PyDict_GetItemWithError(table, key);
    if (!value && !PyErr_Occurred()) {
        value = PyObject_CallMethod(kernel->host, method, "O", key);
        if (value && PyDict_GET_SIZE(table) >= MAX_TEXTS)
            PyDict_Clear(table);
        if (value && PyDict_SetItem(table, key, value) < 0)
            Py_CLEAR(value);
        else
            Py_XDECREF(value); /* the table has it */
    }
    Py_DECREF(key);
    return value;
}

static int fill_publish(Kernel *kernel, PyObject *object, const Packet *packet) {
    uint8_t flags = packet->raw[0];
    PyObject *topic = recurring(kernel, kernel->topics, "topic_name", packet->topic, packet->topic_length), *block;
    if (!topic || set(kernel, object, TOPIC_NAME, topic))
        return -1;
    if (set(kernel, object, DUP, flags & 8 ? Py_True : Py_False) || set(kernel, object, RETAIN, flags & 1 ? Py_True : Py_False))
        return -1;
    if (give(kernel, object, QOS, PyLong_FromLong(flags >> 1 & 3)))
        return -1;
    if (packet->packet_identifier < 0 ? set(kernel, object, PACKET_IDENTIFIER, Py_None)
                                      : give(kernel, object, PACKET_IDENTIFIER, PyLong_FromLong(packet->packet_identifier)))
        return -1;
    block = Py_None;
    if (packet->version == 5)
        block = packet->block_length ? recurring(kernel, kernel->blocks, "properties", packet->block, packet->block_length)
                                     : kernel->no_properties;
    if (!block || set(kernel, object, PROPERTIES, block))
        return -1;
    return give(kernel, object, PAYLOAD, PyBytes_FromStringAndSize((const char *)packet->payload, packet->payload_length));
}

static PyObject *packet_object(Kernel *kernel, const Packet *packet) {
    PyObject *object = made(kernel, PyTuple_GET_ITEM(kernel->types, packet->kind));
    int failed;
    if (!object)
        return NULL;
    failed = give(kernel, object, RAW, PyBytes_FromStringAndSize((const char *)packet->raw, packet->length)) ||
             set(kernel, object, HEADER_FLAGS, Py_None) || set(kernel, object, MISSING, kernel->zero);
    if (!failed && packet->kind == PUBLISH)
        failed = fill_publish(kernel, object, packet);
    else if (!failed && packet->kind <= PUBCOMP)
        failed = give(kernel, object, PACKET_IDENTIFIER, PyLong_FromLong(packet->packet_identifier)) ||
                 set(kernel, object, REASON_CODE, Py_None) || set(kernel, object, PROPERTIES, Py_None);
    if (failed)
        Py_CLEAR(object);
    return object;
}

static PyObject *topic_of(Kernel *kernel, const Half *half, const Packet *packet, PyObject *object, PyObject *direction) {
    if (packet->kind != PUBLISH)
        return Py_NewRef(Py_None);
    if (packet->topic_length)
        return PyObject_GetAttr(object, kernel->attributes[TOPIC_NAME]);
    return PyObject_CallMethodObjArgs(half->connection, kernel->attributes[RESOLVE_TOPIC], object, direction, NULL);
}

/* Whether a packet becomes an event here. */
bool event_is_frequent(const Packet *packet) {
    if (packet->kind == PUBLISH || packet->kind == PINGREQ || packet->kind == PINGRESP)
        return true;
    return packet->kind >= PUBACK && packet->kind <= PUBCOMP && packet->length == 4;
}

int event_feed(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at) {
    Half *half = &flow->half[from];
    PyObject *direction = PyTuple_GET_ITEM(kernel->directions, from), *number, *frame = NULL, *ns = NULL, *topic, *result;
    PyObject *object = packet_object(kernel, packet), *event = object ? made(kernel, kernel->event_type) : NULL;
    int failed = !event;
    number = PyLong_FromUnsignedLongLong(kernel->packets);
    frame = PyLong_FromUnsignedLong(at->frame);
    ns = PyLong_FromLongLong(at->ns);
    if (!failed)
        failed = !number || !frame || !ns || set(kernel, event, CONNECTION, half->connection) ||
                 set(kernel, event, DIRECTION, direction) || set(kernel, event, NUMBER, number) ||
                 set(kernel, event, FRAME, frame) || set(kernel, event, TIMESTAMP_NS, ns) ||
                 set(kernel, event, CAPTURE, kernel->capture_name) || set(kernel, event, PACKET, object) ||
                 give(kernel, event, STREAM_OFFSET, PyLong_FromLongLong(half->stream_offset)) ||
                 give(kernel, half->side, STREAM_OFFSET, PyLong_FromLongLong(half->stream_offset + packet->length));
    if (!failed) {
        topic = topic_of(kernel, half, packet, object, direction);
        failed = give(kernel, event, TOPIC, topic);
    }
    kernel->packets++;
    if (!failed)
        failed = host_give_count(kernel);
    if (!failed) {
        result = PyObject_CallOneArg(kernel->feed, event);
        failed = !result;
        Py_XDECREF(result);
    }
    if (!failed) {
        result = PyObject_CallMethodObjArgs(half->connection, kernel->attributes[APPLY], object, direction, number, frame, ns,
                                            NULL);
        failed = !result;
        Py_XDECREF(result);
    }
    if (!failed)
        failed = host_take_count(kernel);
    Py_XDECREF(number);
    Py_XDECREF(frame);
    Py_XDECREF(ns);
    Py_XDECREF(event);
    Py_XDECREF(object);
    return failed ? -1 : 0;
}

/* Notes the progress of a segment in the history of its connection, before its packets. */
int event_segment(Kernel *kernel, Flow *flow, int from, int64_t end, int64_t acknowledged, const Segment *at) {
    Half *half = &flow->half[from];
    PyObject *words[7] = {half->history_of, from == INITIATOR ? Py_True : Py_False}, *result = NULL;
    int64_t numbers[5] = {end, acknowledged, flow->half[!from].offset, at->ns, half->held_bytes};
    int count = 0;
    if (!half->history_of)
        return 0;
    while (count < 5 && (words[2 + count] = PyLong_FromLongLong(numbers[count])))
        count++;
    if (count == 5)
        result = PyObject_VectorcallMethod(kernel->attributes[SEGMENT], words, 7, NULL);
    while (count)
        Py_DECREF(words[1 + count--]);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Takes the parts of a connection that its packets change. */
int event_connect(Kernel *kernel, Flow *flow, PyObject *connection) {
    for (int side = 0; side < 2; side++) {
        Half *half = &flow->half[side];
        PyObject *history = PyObject_GetAttr(connection, kernel->attributes[HISTORY_OF]);
        Py_XSETREF(half->connection, Py_NewRef(connection));
        Py_XSETREF(half->side, PyObject_GetAttr(connection, kernel->attributes[side ? SERVER_SIDE : CLIENT_SIDE]));
        if (!history || !half->side) {
            Py_XDECREF(history);
            return -1;
        }
        if (history == Py_None)
            Py_CLEAR(history);
        Py_XSETREF(half->history_of, history);
    }
    return 0;
}
