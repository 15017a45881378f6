/* Calls of the Python side: `dissect.kernel_path.KernelHost` handles there what is not frequent. */

#include "kernel.h"

/* Numbers of packets are counted on both sides in turn. */
int host_give_count(Kernel *kernel) {
    PyObject *count = PyLong_FromUnsignedLongLong(kernel->packets);
    int failed = !count || PyObject_SetAttr(kernel->counting, kernel->packets_name, count) < 0;
    Py_XDECREF(count);
    kernel->is_given = true;
    return failed || (kernel->tally && tally_give(kernel)) ? -1 : 0;
}

int host_take_count(Kernel *kernel) {
    PyObject *count = PyObject_GetAttr(kernel->counting, kernel->packets_name);
    if (!count)
        return -1;
    kernel->packets = PyLong_AsUnsignedLongLong(count);
    kernel->is_given = false;
    Py_DECREF(count);
    return PyErr_Occurred() || (kernel->tally && tally_take(kernel)) ? -1 : 0;
}

/* The result of a call, after the count was taken back. */
static PyObject *done(Kernel *kernel, PyObject *result) {
    if (result && host_take_count(kernel))
        Py_CLEAR(result);
    return result;
}

static int finish(Kernel *kernel, PyObject *result) {
    result = done(kernel, result);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Whether a frame without a usual TCP segment has another one, and its key.  1: it may belong to any connection. */
int host_unusual_key(Kernel *kernel, const Frame *frame, bool *is_segment, Segment *segment) {
    PyObject *key = PyObject_CallMethod(kernel->host, "unusual", "y#IILI", frame->bytes, (Py_ssize_t)frame->length,
                                        frame->number, frame->link, (long long)frame->ns, frame->original);
    int result = 0;
    if (!key)
        return -1;
    *is_segment = key != Py_None;
    if (PyBytes_Check(key) && (PyBytes_GET_SIZE(key) == 12 || PyBytes_GET_SIZE(key) == 36)) {
        segment->key_length = (uint8_t)PyBytes_GET_SIZE(key);
        memcpy(segment->key, PyBytes_AS_STRING(key), segment->key_length);
    } else if (*is_segment) {
        result = 1;
    }
    Py_DECREF(key);
    return result;
}

int host_unusual(Kernel *kernel, const Frame *frame, bool *is_segment) {
    Segment segment;
    return host_unusual_key(kernel, frame, is_segment, &segment);
}

int host_opened(Kernel *kernel, Flow *flow, const Segment *segment) {
    PyObject *result;
    if (!kernel->running)
        return 0;
    if (host_give_count(kernel))
        return -1;
    result = PyObject_CallMethod(kernel->host, "opened", "y#iILI", flow->key, (Py_ssize_t)flow->key_length, (int)flow->tag,
                                 segment->frame, (long long)segment->ns, segment->sequence);
    result = done(kernel, result);
    Py_XSETREF(flow->state, result);
    kernel->flows_here++;
    return result ? 0 : -1;
}

int host_data(Kernel *kernel, Flow *flow, int from, const uint8_t *bytes, uint32_t length, const Segment *at) {
    if (host_give_count(kernel))
        return -1;
    return finish(kernel, PyObject_CallMethod(kernel->host, "data", "Oiy#LILLL", flow->state, from == INITIATOR, bytes,
                                              (Py_ssize_t)length, (long long)flow->half[from].offset, at->frame,
                                              (long long)at->ns, (long long)at->acknowledged,
                                              (long long)flow->half[!from].offset));
}

static int take_namings(Flow *flow, PyObject *client, PyObject *server) {
    if (!PyBytes_Check(client) || !PyBytes_Check(server)) {
        PyErr_SetString(PyExc_TypeError, "names of a connection are bytes");
        return -1;
    }
    Py_INCREF(client);
    Py_XSETREF(flow->half[INITIATOR].naming, client);
    Py_INCREF(server);
    Py_XSETREF(flow->half[RESPONDER].naming, server);
    return 0;
}

void note_latest(Half *half, uint32_t frame, int64_t ns, int64_t end) {
    if (!half->latest)
        half->latest = PyMem_RawMalloc(LATEST * sizeof *half->latest);
    if (!half->latest)
        return;
    half->latest[half->latest_at] = (Latest){frame, ns, end};
    half->latest_at = (half->latest_at + 1) % LATEST;
    if (half->latest_count < LATEST)
        half->latest_count++;
}

static int take_latest(Half *half, PyObject *numbers) {
    if (!PyList_Check(numbers))
        return 0;
    for (Py_ssize_t at = 0; at + 2 < PyList_GET_SIZE(numbers); at += 3)
        note_latest(half, (uint32_t)PyLong_AsUnsignedLong(PyList_GET_ITEM(numbers, at)),
                    PyLong_AsLongLong(PyList_GET_ITEM(numbers, at + 1)), PyLong_AsLongLong(PyList_GET_ITEM(numbers, at + 2)));
    return PyErr_Occurred() ? -1 : 0;
}

int host_ready(Kernel *kernel, Flow *flow) {
    PyObject *result, *names[2], *latest[2];
    long long offsets[2] = {0, 0};
    int is_right;
    if (host_give_count(kernel))
        return -1;
    result = done(kernel, PyObject_CallMethod(kernel->host, "ready", "O", flow->state));
    if (!result)
        return -1;
    if (kernel->tally) {
        is_right = !tally_begin(kernel, flow, result);
        Py_DECREF(result);
        return is_right ? 0 : -1;
    }
    if (kernel->feed) {
        PyObject *connection;
        is_right = PyArg_ParseTuple(result, "OLL", &connection, &offsets[0], &offsets[1]) &&
                   !event_connect(kernel, flow, connection);
        flow->half[0].stream_offset = offsets[0];
        flow->half[1].stream_offset = offsets[1];
        Py_DECREF(result);
        return is_right ? 0 : -1;
    }
    is_right = PyArg_ParseTuple(result, "SSLLOO", &names[0], &names[1], &offsets[0], &offsets[1], &latest[0], &latest[1]) &&
               !take_namings(flow, names[0], names[1]);
    for (int side = 0; is_right && side < 2; side++) {
        flow->half[side].stream_offset = offsets[side];
        is_right = !take_latest(&flow->half[side], latest[side]);
    }
    Py_DECREF(result);
    flow->generation = kernel->generation;
    return is_right ? 0 : -1;
}

/* Names a connection again after the report has forgotten it, and with it the latest packets. */
int host_introduce(Kernel *kernel, Flow *flow) {
    PyObject *client, *server, *result = PyObject_CallMethod(kernel->host, "introduce", "O", flow->state);
    int is_right = result && PyArg_ParseTuple(result, "SS", &client, &server) && !take_namings(flow, client, server);
    Py_XDECREF(result);
    flow->half[0].latest_count = flow->half[1].latest_count = 0;
    flow->generation = kernel->generation;
    return is_right ? 0 : -1;
}

/* Packets that became lines since Python last saw the connection: number, bytes, position, time of the latest. */
static PyObject *progress(Half *half) {
    PyObject *values = Py_BuildValue("(ILLL)", half->packets, (long long)half->bytes, (long long)half->stream_offset,
                                     (long long)half->last_ns);
    half->packets = 0;
    half->bytes = 0;
    return values;
}

int host_packet(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at) {
    PyObject *result, *client, *server;
    int failed;
    if (host_give_count(kernel))
        return -1;
    result = PyObject_CallMethod(kernel->host, "packet", "Oiy#ILN", flow->state, from == INITIATOR, packet->raw,
                                 (Py_ssize_t)packet->length, at->frame, (long long)at->ns, progress(&flow->half[from]));
    result = done(kernel, result);
    if (!result)
        return -1;
    failed = result != Py_None && !(PyArg_ParseTuple(result, "SS", &client, &server) && !take_namings(flow, client, server));
    Py_DECREF(result);
    return failed ? -1 : 0;
}

/* Notes the sender of a reset; `from` is -1 after the end of the connection. */
int host_reset(Kernel *kernel, Flow *flow, const Segment *segment, int from) {
    int is_disowned = 0;
    if (!kernel->running)
        return 0;
    if (from >= 0 && !(segment->flags & ACK)) {
        const Half *half = &flow->half[from];
        int64_t start = half->offset + (int32_t)(segment->sequence - half->sequence);
        is_disowned = half->fin < 0 && start == half->acknowledged;
    }
    if (host_give_count(kernel))
        return -1;
    return finish(kernel, PyObject_CallMethod(kernel->host, "reset", "OIy#i", flow->state ? flow->state : Py_None,
                                              segment->frame, segment->key, (Py_ssize_t)segment->key_length, is_disowned));
}

int host_copied(Kernel *kernel, Flow *flow) {
    PyObject *result;
    if (!kernel->running)
        return 0;
    result = PyObject_CallMethod(kernel->host, "copied", "O", flow->state);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static PyObject *numbers_of(const Half *half) {
    return Py_BuildValue("{sI,sL,sL,sL,sL,sI,sI,sI,sL,sI,sI,sI,sI}", "sequence", half->sequence, "offset",
                         (long long)half->offset, "acknowledged", (long long)half->acknowledged, "sent",
                         (long long)half->sent, "fin_offset", (long long)half->fin, "data_segments", half->data_segments,
                         "empty_segments", half->empty_segments, "retransmitted_segments", half->retransmitted_segments,
                         "retransmitted_bytes", (long long)half->retransmitted_bytes, "duplicate_segments",
                         half->duplicate_segments, "out_of_order_segments", half->out_of_order_segments,
                         "keep_alive_probes", half->keep_alive_probes, "copied_segments", half->copied_segments);
}

static PyObject *latest_of(const Half *half) {
    PyObject *numbers = PyList_New(0);
    for (uint32_t count = half->latest_count; numbers && count; count--) {
        const Latest *latest = &half->latest[(half->latest_at + LATEST - count) % LATEST];
        long long values[3] = {latest->frame, latest->ns, latest->end};
        for (int at = 0; at < 3; at++) {
            PyObject *value = PyLong_FromLongLong(values[at]);
            if (!value || PyList_Append(numbers, value) < 0)
                Py_CLEAR(numbers);
            Py_XDECREF(value);
            if (!numbers)
                break;
        }
    }
    return numbers;
}

/* The state of one direction for the end of a stream or of the flow. */
static PyObject *side_of(Half *half) {
    return Py_BuildValue("(NNNIL)", numbers_of(half), progress(half), latest_of(half), half->fin_frame, (long long)half->fin_ns);
}

/* What time-outs need to know of an open connection: its latest frame, and the positions of both directions. */
PyObject *host_standing(Flow *flow) {
    PyObject *sides[2];
    for (int side = 0; side < 2; side++) {
        const Half *half = &flow->half[side];
        sides[side] = Py_BuildValue("(LLLLIIiI)", (long long)half->offset, (long long)half->acknowledged,
                                    (long long)half->sent, (long long)half->fin, half->data_segments, half->empty_segments,
                                    half->state == ENDED, half->waiting_count);
    }
    return Py_BuildValue("(ILNN)", flow->last_frame, (long long)flow->last_ns, sides[0], sides[1]);
}

static int end(Kernel *kernel, Flow *flow, const char *method, int from, const char *how, uint32_t frame, int64_t ns) {
    PyObject *result;
    if (!kernel->running)
        return 0;
    if (host_give_count(kernel))
        return -1;
    result = PyObject_CallMethod(kernel->host, method, "OisILILiNNL", flow->state, from == INITIATOR, how, frame, (long long)ns,
                                 flow->last_frame, (long long)flow->last_ns, flow->is_ready, side_of(&flow->half[INITIATOR]),
                                 side_of(&flow->half[RESPONDER]), (long long)kernel->last_ns);
    if (result && flow->tally)
        flow->tally->closed_ns = PyLong_AsLongLong(result); /* of the first end */
    return PyErr_Occurred() ? (Py_XDECREF(result), -1) : finish(kernel, result);
}

int host_ended(Kernel *kernel, Flow *flow, int from, const char *how, uint32_t frame, int64_t ns) {
    /* A packet that ends with the stream is for Python to judge. */
    if (flow->half[from].held_bytes)
        return UNFINISHED;
    return end(kernel, flow, "ended", from, how, frame, ns);
}

int host_closed(Kernel *kernel, Flow *flow, const char *how, uint32_t frame, int64_t ns) {
    int failed;
    if (flow->half[0].held_bytes || flow->half[1].held_bytes)
        return UNFINISHED;
    if (kernel->tally && tally_settle(kernel, flow))
        return -1;
    failed = end(kernel, flow, "closed", INITIATOR, how, frame, ns);
    if (!failed)
        flow_forget(flow);
    return failed;
}
