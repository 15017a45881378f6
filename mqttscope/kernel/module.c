/* The module `mqttscope.kernel._native`: the class `Kernel`, with the two passes over a capture. */

#include "kernel.h"
#include <stddef.h>

#define INTERFACE 5 /* as in `mqttscope/kernel/__init__.py` */
#define MAX_FLOWS 90000u
#define LOOK_AT 8192u

static const char *const REASON_NAMES[REASONS] = {
    "ordinary", "joined", "handshake", "numbers", "stamps", "window", "checksum", "copy", "beginning", "overlap", "waiting", "gap",
    "timeout", "reset", "reused", "tags", "unreadable", "protocol", "malformed", "large", "unfinished",
};

static void mark_odd(Kernel *kernel, Flow *flow, int why) {
    if (flow->odd)
        return;
    flow->odd = (uint8_t)why;
    kernel->reasons[why]++;
    for (int side = 0; side < 2; side++)
        kernel->held_bytes -= flow->half[side].held_bytes + flow->half[side].waiting_bytes;
    flow_forget(flow);
}

static bool is_near(bool known, int64_t ns, int64_t before_ns) {
    return known && ns - before_ns > -NS && ns - before_ns < NS;
}

/* Follows the clock as `dissect.fast_path` does; 0 if a segment comes after a step of it.  -1 with an exception set. */
static int follow_clock(Kernel *kernel, const Frame *frame, const Segment *segment, bool is_segment) {
    bool is_known = kernel->has_clock, is_close = is_near(is_known, frame->ns, kernel->clock_ns);
    int is_steady = 1;
    if (is_segment && is_known && (!is_close || !is_near(true, frame->ns, kernel->segment_ns))) {
        /* Of a frame with other headers, Python has to judge. */
        kernel->has_intervals = true;
        int64_t jump_ns = frame->ns - (is_close ? kernel->segment_ns : kernel->clock_ns);
        is_steady = segment ? clock_is_steady(kernel, segment, jump_ns) : 0;
    }
    if (is_close || is_segment) {
        kernel->clock_ns = frame->ns;
        kernel->has_clock = true;
    }
    if (is_segment)
        kernel->segment_ns = frame->ns;
    return is_steady;
}

static void begin_pass(Kernel *kernel) {
    capture_rewind(&kernel->capture);
    kernel->latest_ns = INT64_MIN;
    kernel->has_clock = false;
    kernel->held_bytes = 0;
    kernel->frames_here = kernel->frames_elsewhere = kernel->flows_here = 0;
}

/* Marks the connection of an unusual segment as odd. */
static int survey_unusual(Kernel *kernel, const Frame *frame, bool *is_segment) {
    Segment segment = {0};
    Flow *flow;
    int from, result = host_unusual_key(kernel, frame, is_segment, &segment);
    if (result || !*is_segment)
        return result;
    flow = flow_find(kernel, segment.key, segment.key_length, &from);
    if (!flow)
        flow = flow_add(kernel, &segment);
    if (!flow)
        return 1;
    mark_odd(kernel, flow, UNREADABLE);
    return 0;
}

/* Why the whole file is not ordinary; NULL if it is.  With an exception set, any text. */
static const char *survey(Kernel *kernel) {
    Frame frame;
    Segment segment;
    int more;
    begin_pass(kernel);
    while ((more = capture_next(&kernel->capture, &frame)) > 0) {
        int kind = segment_of(&frame, &segment), from = INITIATOR, why;
        bool is_segment = kind == A_SEGMENT;
        Flow *flow;
        if (frame.number % LOOK_AT == 0 && PyErr_CheckSignals())
            return "interrupted";
        if (kind == UNUSUAL) {
            why = survey_unusual(kernel, &frame, &is_segment);
            if (why)
                return why < 0 ? "failed" : "fragments";
        }
        why = follow_clock(kernel, &frame, kind == A_SEGMENT ? &segment : NULL, is_segment);
        if (why <= 0)
            return why < 0 ? "failed" : "clock";
        if (kind == A_SEGMENT) {
            kernel->has_damaged_empty |= segment.wrong && !segment.length;
            flow = flow_find(kernel, segment.key, segment.key_length, &from);
            if (!flow)
                flow = flow_add(kernel, &segment);
            if (!flow)
                return "memory";
            if (flow->odd) {
                kernel->odd_bytes += segment.length;
            } else {
                why = tcp_take(kernel, flow, from, &segment);
                if (why < 0)
                    return "failed";
                if (why)
                    mark_odd(kernel, flow, why);
            }
        }
        if (frame.ns > kernel->latest_ns)
            kernel->latest_ns = frame.ns;
    }
    if (more < 0)
        return "damaged";
    /* After an interval, Python reads some segments in another way, which counts damaged empty ones. */
    if (kernel->has_intervals && kernel->has_damaged_empty)
        return "clock";
    if (kernel->flow_count > MAX_FLOWS)
        return "flows";
    for (uint32_t at = 0; at < kernel->flow_count; at++) {
        Flow *flow = kernel->flows[at];
        int why = flow->odd || flow->closed ? 0 : tcp_end(kernel, flow);
        if (why < 0)
            return "failed";
        if (why)
            mark_odd(kernel, flow, why);
    }
    return NULL;
}

static PyObject *kernel_survey(Kernel *kernel, PyObject *Py_UNUSED(none)) {
    const char *why = survey(kernel);
    if (PyErr_Occurred())
        return NULL;
    if (why)
        return PyUnicode_FromString(why);
    for (uint32_t at = 0; at < kernel->flow_count; at++)
        flow_restart(kernel->flows[at]);
    begin_pass(kernel);
    kernel->running = true;
    Py_RETURN_NONE;
}

static PyObject *doubt(const Flow *flow, int why) {
    (void)flow;
    PyErr_Format(PyExc_RuntimeError, "the kernel met what its survey had not: %s", REASON_NAMES[why]);
    return NULL;
}

/* The time of the next time-out: an event may have scheduled one. */
static int read_due(Kernel *kernel, long long *due_ns) {
    PyObject *due = PyObject_GetAttr(kernel->flow_register, kernel->due_name);
    int overflow;
    if (!due)
        return -1;
    *due_ns = PyLong_AsLongLongAndOverflow(due, &overflow);
    Py_DECREF(due);
    if (overflow)
        *due_ns = overflow > 0 ? NEVER : INT64_MIN;
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *kernel_standing(Kernel *kernel, PyObject *key) {
    int from;
    Flow *flow = PyBytes_Check(key) && (PyBytes_GET_SIZE(key) == 12 || PyBytes_GET_SIZE(key) == 36)
                     ? flow_find(kernel, (uint8_t *)PyBytes_AS_STRING(key), (int)PyBytes_GET_SIZE(key), &from)
                     : NULL;
    if (!flow || flow->odd) {
        PyErr_SetString(PyExc_KeyError, "no such connection");
        return NULL;
    }
    return host_standing(flow);
}

/* Makes events instead of lines. */
static PyObject *kernel_make_events(Kernel *kernel, PyObject *args) {
    PyObject *feed, *types, *event_type, *directions, *no_properties, *capture_name, *flows;
    if (!PyArg_ParseTuple(args, "OO!O!O!OUO", &feed, &PyTuple_Type, &types, &PyType_Type, &event_type, &PyTuple_Type,
                          &directions, &no_properties, &capture_name, &flows))
        return NULL;
    if (kernel->feed || PyTuple_GET_SIZE(types) != 16 || PyTuple_GET_SIZE(directions) != 2) {
        PyErr_SetString(PyExc_ValueError, "16 types and 2 directions are needed, once");
        return NULL;
    }
    for (int kind = 0; kind < 16; kind++)
        if (PyTuple_GET_ITEM(types, kind) != Py_None && !PyType_Check(PyTuple_GET_ITEM(types, kind))) {
            PyErr_SetString(PyExc_TypeError, "packets have types");
            return NULL;
        }
    kernel->types = Py_NewRef(types);
    kernel->event_type = Py_NewRef(event_type);
    kernel->directions = Py_NewRef(directions);
    kernel->no_properties = Py_NewRef(no_properties);
    kernel->capture_name = Py_NewRef(capture_name);
    kernel->flow_register = Py_NewRef(flows);
    if (events_prepare(kernel))
        return NULL;
    kernel->feed = Py_NewRef(feed);
    Py_RETURN_NONE;
}

/* Counts packets, instead of making lines or events of them. */
static PyObject *kernel_make_counts(Kernel *kernel, PyObject *args) {
    PyObject *statistics, *whole, *capture, *other_topic;
    long long releases;
    if (!PyArg_ParseTuple(args, "OOOOL", &statistics, &whole, &capture, &other_topic, &releases))
        return NULL;
    if (kernel->feed || kernel->tally) {
        PyErr_SetString(PyExc_ValueError, "packets are counted once");
        return NULL;
    }
    if (tally_make(kernel, statistics, whole, capture, other_topic, releases))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *kernel_settle(Kernel *kernel, PyObject *Py_UNUSED(none)) {
    if (kernel->tally && ((!kernel->is_given && host_give_count(kernel)) || tally_settle_all(kernel)))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *kernel_settle_topic(Kernel *kernel, PyObject *name) {
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(name, &bytes, &length) < 0)
        return NULL;
    if (kernel->tally && tally_settle_topic(kernel, (const uint8_t *)bytes, (uint32_t)length))
        return NULL;
    Py_RETURN_NONE;
}

/* The next frame for Python, as `(bytes, number, time, link type, length on the wire, interface)`; None at the end. */
static PyObject *kernel_next(Kernel *kernel, PyObject *args) {
    long long due_ns, clock_ns;
    int has_clock, more;
    Frame frame;
    Segment segment;
    if (!PyArg_ParseTuple(args, "LpL", &due_ns, &has_clock, &clock_ns))
        return NULL;
    if (!kernel->running) {
        PyErr_SetString(PyExc_RuntimeError, "the capture was not surveyed");
        return NULL;
    }
    if (host_take_count(kernel))
        return NULL;
    if (kernel->frames_here + kernel->frames_elsewhere) {
        kernel->has_clock = has_clock;
        kernel->clock_ns = clock_ns;
    }
    while ((more = capture_next(&kernel->capture, &frame)) > 0) {
        int kind = segment_of(&frame, &segment), from = INITIATOR, why;
        Flow *flow = NULL;
        if (frame.number % LOOK_AT == 0) {
            PyObject *seen;
            if (PyErr_CheckSignals())
                return NULL;
            seen = PyObject_CallMethod(kernel->host, "seen", "n", (Py_ssize_t)kernel->capture.at);
            if (!seen)
                return NULL;
            Py_DECREF(seen);
        }
        if (kind == A_SEGMENT) {
            flow = flow_find(kernel, segment.key, segment.key_length, &from);
            if (!flow)
                return doubt(NULL, UNREADABLE);
        }
        /* The survey has judged all intervals: no segment begins another judgement. */
        if (is_near(kernel->has_clock, frame.ns, kernel->clock_ns) || (flow && (kernel->has_clock || !flow->odd))) {
            kernel->clock_ns = frame.ns;
            kernel->has_clock = true;
        }
        if (!flow || flow->odd) {
            kernel->frames_elsewhere++;
            if (frame.ns > kernel->latest_ns)
                kernel->latest_ns = frame.ns;
            if (host_give_count(kernel))
                return NULL;
            return Py_BuildValue("y#ILIIIiL", frame.bytes, (Py_ssize_t)frame.length, frame.number, (long long)frame.ns,
                                 frame.link, frame.original, frame.interface, kernel->has_clock,
                                 (long long)kernel->clock_ns);
        }
        kernel->wire_bytes += frame.original;
        kernel->captured_bytes += frame.length;
        if (!kernel->frames_here++)
            kernel->first_ns = kernel->last_ns = frame.ns;
        if (frame.ns > kernel->last_ns)
            kernel->last_ns = frame.ns;
        else if (frame.ns < kernel->first_ns)
            kernel->first_ns = frame.ns;
        if (kernel->flow_register && read_due(kernel, &due_ns))
            return NULL;
        if (frame.ns >= due_ns) {
            PyObject *due;
            if (host_give_count(kernel))
                return NULL;
            due = PyObject_CallMethod(kernel->host, "advance", "L", (long long)frame.ns);
            if (!due || host_take_count(kernel)) {
                Py_XDECREF(due);
                return NULL;
            }
            due_ns = PyLong_AsLongLong(due);
            Py_DECREF(due);
            if (PyErr_Occurred())
                return NULL;
        }
        why = tcp_take(kernel, flow, from, &segment);
        if (why < 0)
            return NULL;
        if (why)
            return doubt(flow, why);
        if (frame.ns > kernel->latest_ns)
            kernel->latest_ns = frame.ns;
    }
    if (more < 0)
        return doubt(NULL, UNREADABLE);
    if (host_give_count(kernel))
        return NULL;
    Py_RETURN_NONE;
}

/* The open connections at the end of the capture: opening time, first frame, and index, in the order of their ends. */
static PyObject *kernel_open(Kernel *kernel, PyObject *Py_UNUSED(none)) {
    PyObject *open = PyList_New(0);
    for (uint32_t at = 0; open && at < kernel->flow_count; at++) {
        Flow *flow = kernel->flows[at];
        PyObject *row;
        if (flow->odd || flow->closed || !flow->first_frame)
            continue;
        row = Py_BuildValue("(LII)", (long long)flow->opened_ns, flow->first_frame, at);
        if (!row || PyList_Append(open, row) < 0)
            Py_CLEAR(open);
        Py_XDECREF(row);
    }
    if (open && PyList_Sort(open) < 0)
        Py_CLEAR(open);
    return open;
}

static PyObject *kernel_end(Kernel *kernel, PyObject *number) {
    unsigned long at = PyLong_AsUnsignedLong(number);
    int why;
    if (PyErr_Occurred())
        return NULL;
    if (at >= kernel->flow_count || !kernel->running || kernel->flows[at]->closed || kernel->flows[at]->odd) {
        PyErr_SetString(PyExc_ValueError, "no such open connection");
        return NULL;
    }
    if (host_take_count(kernel))
        return NULL;
    why = tcp_end(kernel, kernel->flows[at]);
    if (why < 0)
        return NULL;
    if (why)
        return doubt(kernel->flows[at], why);
    if (host_give_count(kernel))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *kernel_append(Kernel *kernel, PyObject *data) {
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(data, &bytes, &length) < 0 || out_append(kernel, bytes, (size_t)length))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *kernel_flush(Kernel *kernel, PyObject *Py_UNUSED(none)) {
    if (out_flush(kernel))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *kernel_forget_names(Kernel *kernel, PyObject *Py_UNUSED(none)) {
    kernel->generation++;
    Py_RETURN_NONE;
}

static PyObject *kernel_counts(Kernel *kernel, PyObject *Py_UNUSED(none)) {
    PyObject *reasons = PyDict_New(), *counts;
    uint64_t odd = 0;
    if (!reasons)
        return NULL;
    for (int why = 1; why < REASONS; why++) {
        PyObject *count = PyLong_FromUnsignedLongLong(kernel->reasons[why]);
        if (!count || (kernel->reasons[why] && PyDict_SetItemString(reasons, REASON_NAMES[why], count) < 0)) {
            Py_XDECREF(count);
            Py_DECREF(reasons);
            return NULL;
        }
        odd += kernel->reasons[why];
        Py_DECREF(count);
    }
    counts = Py_BuildValue("{sK,sK,sK,sL,sL,sK,sI,sK,sK,sN}", "frames", kernel->frames_here, "wire_bytes",
                           kernel->wire_bytes, "captured_bytes", kernel->captured_bytes, "first_ns",
                           (long long)kernel->first_ns, "last_ns", (long long)kernel->last_ns, "frames_elsewhere",
                           kernel->frames_elsewhere, "flows", kernel->flow_count - (uint32_t)odd, "odd_flows", odd,
                           "odd_bytes", kernel->odd_bytes, "reasons", reasons);
    return counts;
}

/* Whether a tuple has a short text for each code. */
static bool are_texts(PyObject *texts, Py_ssize_t longest) {
    bool is_right = PyTuple_GET_SIZE(texts) == 256;
    for (int code = 0; is_right && code < 256; code++)
        is_right = PyBytes_Check(PyTuple_GET_ITEM(texts, code)) && PyBytes_GET_SIZE(PyTuple_GET_ITEM(texts, code)) <= longest;
    if (!is_right)
        PyErr_SetString(PyExc_ValueError, "256 short texts are needed");
    return is_right;
}

static int kernel_init(Kernel *kernel, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "host", "sink", "counting", "opening", "outcomes", "reasons", "allowed",
                            "payload_limit", "shows_secrets", "has_stems", NULL};
    PyObject *data, *host, *sink, *counting, *opening, *outcomes, *reasons[3], *allowed, *key, *codes;
    unsigned int payload_limit;
    int shows_secrets, has_stems;
    Py_ssize_t at = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOOSO!(O!O!O!)O!Ipp", names, &data, &host, &sink, &counting, &opening,
                                     &PyTuple_Type, &outcomes, &PyTuple_Type, &reasons[0], &PyTuple_Type, &reasons[1],
                                     &PyTuple_Type, &reasons[2], &PyDict_Type, &allowed, &payload_limit, &shows_secrets,
                                     &has_stems))
        return -1;
    if (kernel->buffer.obj) {
        PyErr_SetString(PyExc_RuntimeError, "a kernel reads one capture");
        return -1;
    }
    if (!are_texts(outcomes, 400) || !are_texts(reasons[0], 58) || !are_texts(reasons[1], 58) || !are_texts(reasons[2], 58))
        return -1;
    while (PyDict_Next(allowed, &at, &key, &codes)) {
        int version, kind;
        if (!PyArg_ParseTuple(key, "ii", &version, &kind) || !PyBytes_Check(codes) || version < 0 || version > 5 ||
            kind < 0 || kind > 15) {
            PyErr_SetString(PyExc_ValueError, "reason codes are bytes, by version and packet type");
            return -1;
        }
        for (Py_ssize_t place = 0; place < PyBytes_GET_SIZE(codes); place++) {
            uint8_t code = (uint8_t)PyBytes_AS_STRING(codes)[place];
            kernel->allowed[version][kind][code >> 6] |= 1ull << (code & 63);
        }
    }
    if (PyObject_GetBuffer(data, &kernel->buffer, PyBUF_SIMPLE) < 0)
        return -1;
    if (capture_open(&kernel->capture, kernel->buffer.buf, (size_t)kernel->buffer.len)) {
        PyErr_SetString(PyExc_ValueError, "not an ordinary capture");
        return -1;
    }
    kernel->host = Py_NewRef(host);
    kernel->sink = Py_NewRef(sink);
    kernel->counting = Py_NewRef(counting);
    kernel->opening = Py_NewRef(opening);
    kernel->outcomes = Py_NewRef(outcomes);
    kernel->packets_name = PyUnicode_InternFromString("packets");
    kernel->due_name = PyUnicode_InternFromString("next_sweep_ns");
    if (!kernel->packets_name || !kernel->due_name)
        return -1;
    kernel->topics = PyDict_New();
    kernel->blocks = PyDict_New();
    kernel->payloads = PyDict_New();
    kernel->names = PyDict_New();
    kernel->reason_names[0][0] = Py_NewRef(reasons[0]);
    kernel->reason_names[0][1] = Py_NewRef(reasons[1]);
    kernel->reason_names[1][0] = kernel->reason_names[1][1] = reasons[2];
    Py_INCREF(reasons[2]);
    Py_INCREF(reasons[2]);
    kernel->payload_limit = payload_limit;
    kernel->shows_secrets = shows_secrets;
    kernel->has_stems = has_stems;
    return kernel->topics && kernel->blocks && kernel->payloads && kernel->names ? 0 : -1;
}

static int kernel_traverse(Kernel *kernel, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(kernel));
    Py_VISIT(kernel->host);
    Py_VISIT(kernel->sink);
    Py_VISIT(kernel->counting);
    Py_VISIT(kernel->feed);
    Py_VISIT(kernel->flow_register);
    for (uint32_t at = 0; at < kernel->flow_count; at++)
        Py_VISIT(kernel->flows[at]->state);
    return 0;
}

static int kernel_clear(Kernel *kernel) {
    Py_CLEAR(kernel->host);
    Py_CLEAR(kernel->sink);
    Py_CLEAR(kernel->counting);
    Py_CLEAR(kernel->feed);
    Py_CLEAR(kernel->flow_register);
    flows_clear(kernel);
    tally_free(kernel);
    return 0;
}

static void kernel_dealloc(Kernel *kernel) {
    PyTypeObject *type = Py_TYPE(kernel);
    PyObject_GC_UnTrack(kernel);
    kernel_clear(kernel);
    Py_CLEAR(kernel->opening);
    Py_CLEAR(kernel->outcomes);
    Py_CLEAR(kernel->topics);
    Py_CLEAR(kernel->blocks);
    Py_CLEAR(kernel->payloads);
    Py_CLEAR(kernel->names);
    Py_CLEAR(kernel->packets_name);
    Py_CLEAR(kernel->due_name);
    Py_CLEAR(kernel->types);
    Py_CLEAR(kernel->event_type);
    Py_CLEAR(kernel->directions);
    Py_CLEAR(kernel->no_properties);
    Py_CLEAR(kernel->capture_name);
    Py_CLEAR(kernel->zero);
    Py_CLEAR(kernel->empty_tuple);
    for (int at = 0; at < ATTRIBUTES; at++)
        Py_CLEAR(kernel->attributes[at]);
    for (int at = 0; at < 4; at++)
        Py_CLEAR(kernel->reason_names[at / 2][at % 2]);
    Py_CLEAR(kernel->time_before);
    Py_CLEAR(kernel->time_after);
    capture_close(&kernel->capture);
    PyMem_RawFree(kernel->out);
    if (kernel->buffer.obj)
        PyBuffer_Release(&kernel->buffer);
    type->tp_free((PyObject *)kernel);
    Py_DECREF(type);
}

/* Let go of the mapped file: nothing is read after that. */
static PyObject *kernel_close(Kernel *kernel, PyObject *Py_UNUSED(none)) {
    kernel->running = false;
    kernel->capture.size = kernel->capture.at = 0;
    if (kernel->buffer.obj)
        PyBuffer_Release(&kernel->buffer);
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"survey", (PyCFunction)kernel_survey, METH_NOARGS, "Pass 1: None if the file is ordinary, else the reason."},
    {"next", (PyCFunction)kernel_next, METH_VARARGS, "Pass 2 up to the next frame for Python."},
    {"open", (PyCFunction)kernel_open, METH_NOARGS, "The open connections, in the order of their ends."},
    {"end", (PyCFunction)kernel_end, METH_O, "End an open connection."},
    {"append", (PyCFunction)kernel_append, METH_O, "Add to the output."},
    {"flush", (PyCFunction)kernel_flush, METH_NOARGS, "Write the output."},
    {"forget_names", (PyCFunction)kernel_forget_names, METH_NOARGS, "Name all connections again."},
    {"make_events", (PyCFunction)kernel_make_events, METH_VARARGS, "Make events instead of lines."},
    {"make_counts", (PyCFunction)kernel_make_counts, METH_VARARGS, "Count packets instead of making lines."},
    {"settle", (PyCFunction)kernel_settle, METH_NOARGS, "Give all counts to Python."},
    {"settle_topic", (PyCFunction)kernel_settle_topic, METH_O, "Give the counts of a topic to Python."},
    {"standing", (PyCFunction)kernel_standing, METH_O, "The state of an open connection."},
    {"close", (PyCFunction)kernel_close, METH_NOARGS, "Let go of the mapped file."},
    {"counts", (PyCFunction)kernel_counts, METH_NOARGS, "What was read here, and what was not."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot SLOTS[] = {
    {Py_tp_doc, "A capture of ordinary MQTT connections."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, kernel_init},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_traverse, kernel_traverse},
    {Py_tp_clear, kernel_clear},
    {Py_tp_methods, METHODS},
    {0, NULL},
};

static PyType_Spec SPEC = {"mqttscope.kernel._native.Kernel", sizeof(Kernel), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           SLOTS};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&MODULE), *type = PyType_FromSpec(&SPEC);
    if (!module || !type || PyModule_AddObjectRef(module, "Kernel", type) < 0 ||
        PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
