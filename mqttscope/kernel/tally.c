/* Counts the packets of ordinary connections for `stats`, as `stats.collect.Statistics` does.

Sums are added to the rows of Python at the end of a connection and of the run.  What depends on the order of packets
(the packets of the current second) is handed over before and after each call of Python: `tally_give`, `tally_take`.
Of the state of a connection, only exchanges without an answer are followed, as in `session.connection`. */

#include "kernel.h"
#include <math.h>

enum { PUBLISH = 3, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP };
/* Places in a row of counts, as in `stats.rows`. */
enum { BYTES = 32, QOS = 64, PAYLOAD = 72, RETAIN = 74, DUP = 76, ALIAS_SETS = 90, ALIAS_HITS = 92, SAVED = 94 };
/* Measured handshakes. */
enum { PUBLISH_PUBACK = 1, PUBLISH_PUBREC, PUBREL_PUBCOMP, PUBLISH_PUBCOMP, SUBSCRIBE_SUBACK, UNSUBSCRIBE_UNSUBACK, PINGREQ_PINGRESP };
/* Kinds and phases of exchanges. */
enum { A_PUBLISH = 1, A_SUBSCRIBE, AN_UNSUBSCRIBE };
enum { SENT, RECEIVED, RELEASED };
/* Places in a row of a topic. */
enum { MESSAGES, TOPIC_BYTES = 2, TOPIC_PAYLOAD = 4, TOPIC_QOS = 6, TOPIC_RETAIN = 14, TOPIC_DUP = 16 };

#define MAX_TOPICS 100000u

static const char *const WINDOW_NAMES[5] = {"second", "packets", "bytes", "peak_packets", "peak_bytes"};

static int load_window(const Tally *tally, PyObject *object, Window *window) {
    int64_t *values[5] = {&window->second, &window->packets, &window->bytes, &window->peak_packets, &window->peak_bytes};
    for (int at = 0; at < 5; at++) {
        PyObject *value = PyObject_GetAttr(object, tally->window_names[at]);
        if (!value)
            return -1;
        *values[at] = PyLong_AsLongLong(value);
        Py_DECREF(value);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int set_number(PyObject *object, PyObject *name, int64_t number) {
    PyObject *value = PyLong_FromLongLong(number);
    int failed = !value || PyObject_SetAttr(object, name, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

static int store_window(const Tally *tally, PyObject *object, const Window *window) {
    int64_t values[5] = {window->second, window->packets, window->bytes, window->peak_packets, window->peak_bytes};
    for (int at = 0; at < 5; at++)
        if (set_number(object, tally->window_names[at], values[at]))
            return -1;
    return 0;
}

static void add_to_window(Window *window, int64_t second, uint32_t size) {
    if (second != window->second && second != window->second - 1) {
        window->second = second;
        window->packets = window->bytes = 0;
    }
    window->packets++;
    window->bytes += size;
    if (window->packets > window->peak_packets)
        window->peak_packets = window->packets;
    if (window->bytes > window->peak_bytes)
        window->peak_bytes = window->bytes;
}

/* Lets Python continue the counts that depend on the order of packets. */
int tally_give(Kernel *kernel) {
    Tally *tally = kernel->tally;
    for (int at = 0; at < 2; at++)
        if (store_window(tally, tally->window_objects[at], &tally->windows[at]))
            return -1;
    return set_number(tally->statistics, tally->releases_name, tally->releases);
}

int tally_take(Kernel *kernel) {
    Tally *tally = kernel->tally;
    PyObject *releases;
    for (int at = 0; at < 2; at++)
        if (load_window(tally, tally->window_objects[at], &tally->windows[at]))
            return -1;
    releases = PyObject_GetAttr(tally->statistics, tally->releases_name);
    if (!releases)
        return -1;
    tally->releases = PyLong_AsLongLong(releases);
    Py_DECREF(releases);
    return PyErr_Occurred() ? -1 : 0;
}

/* Row of a topic. */

static uint32_t hash_of(const uint8_t *bytes, uint32_t length) {
    uint64_t hash = 0xCBF29CE484222325u ^ length, word;
    for (; length >= 8; bytes += 8, length -= 8) {
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, bytes, length);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(hash ^ hash >> 32);
}

static TopicTally **topic_place(const Tally *tally, const uint8_t *name, uint32_t length, uint32_t hash) {
    uint32_t at = hash & (tally->topic_room - 1);
    for (; tally->topics[at]; at = (at + 1) & (tally->topic_room - 1)) {
        const TopicTally *topic = tally->topics[at];
        if (topic->hash == hash && topic->length == length && !memcmp(topic->name, name, length))
            break;
    }
    return &tally->topics[at];
}

static int grow_topics(Tally *tally) {
    TopicTally **before = tally->topics;
    uint32_t room = tally->topic_room;
    tally->topics = PyMem_RawCalloc(room ? 2 * (size_t)room : 1024, sizeof *tally->topics);
    if (!tally->topics) {
        tally->topics = before;
        PyErr_NoMemory();
        return -1;
    }
    tally->topic_room = room ? 2 * room : 1024;
    for (uint32_t at = 0; at < room; at++)
        if (before[at])
            *topic_place(tally, before[at]->name, before[at]->length, before[at]->hash) = before[at];
    PyMem_RawFree(before);
    return 0;
}

static void free_topic(TopicTally *topic) {
    Py_XDECREF(topic->row);
    Py_XDECREF(topic->window_object);
    Py_XDECREF(topic->clients[0]);
    Py_XDECREF(topic->clients[1]);
    PyMem_RawFree(topic->name);
    PyMem_RawFree(topic);
}

/* Asks for the row of a topic; a name that is NULL is of packets whose topic is not known. */
static TopicTally *make_topic(Kernel *kernel, const uint8_t *name, uint32_t length, uint32_t hash, int64_t ns) {
    TopicTally *topic = PyMem_RawCalloc(1, sizeof *topic);
    PyObject *answer;
    if (!topic) {
        PyErr_NoMemory();
        return NULL;
    }
    answer = PyObject_CallMethod(kernel->host, "topic_row", "y#L", (const char *)name, (Py_ssize_t)length, (long long)ns);
    if (answer && PyArg_ParseTuple(answer, "OOO!O!", &topic->row, &topic->window_object, &PySet_Type, &topic->clients[0],
                                   &PySet_Type, &topic->clients[1])) {
        Py_INCREF(topic->row);
        Py_INCREF(topic->window_object);
        Py_INCREF(topic->clients[0]);
        Py_INCREF(topic->clients[1]);
        topic->name = PyMem_RawMalloc(length + 1);
    } else {
        topic->row = topic->window_object = topic->clients[0] = topic->clients[1] = NULL;
    }
    Py_XDECREF(answer);
    if (!topic->name) {
        free_topic(topic);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return NULL;
    }
    if (length)
        memcpy(topic->name, name, length);
    topic->length = length;
    topic->hash = hash;
    return topic;
}

static int settle_topic(Kernel *kernel, TopicTally *topic) {
    PyObject *result;
    if (!topic->is_loaded)
        return 0;
    if (store_window(kernel->tally, topic->window_object, &topic->window))
        return -1;
    result = PyObject_CallMethod(kernel->host, "topic_counted", "Oy#L", topic->row, (const char *)topic->numbers,
                                 (Py_ssize_t)sizeof topic->numbers, (long long)topic->last_ns);
    if (!result)
        return -1;
    Py_DECREF(result);
    memset(topic->numbers, 0, sizeof topic->numbers);
    topic->is_loaded = false;
    return 0;
}

/* The topic of a packet.  All topics beyond the limit are one: then Python is asked for each packet. */
static TopicTally *topic_of(Kernel *kernel, const uint8_t *name, uint32_t length, int64_t ns) {
    Tally *tally = kernel->tally;
    uint32_t hash = hash_of(name, length);
    TopicTally **place, *topic;
    if (2 * (tally->topic_count + 1) > tally->topic_room && grow_topics(tally))
        return NULL;
    place = topic_place(tally, name, length, hash);
    if (!*place) {
        topic = make_topic(kernel, name, length, hash, ns);
        if (!topic)
            return NULL;
        if (topic->row == tally->other_topic || tally->topic_count >= MAX_TOPICS) {
            if (tally->passing && (settle_topic(kernel, tally->passing))) {
                free_topic(topic);
                return NULL;
            }
            if (tally->passing)
                free_topic(tally->passing);
            tally->passing = topic;
            place = &tally->passing;
        } else {
            *place = topic;
            tally->topic_count++;
        }
    }
    topic = *place;
    if (!topic->is_loaded) {
        if (load_window(tally, topic->window_object, &topic->window))
            return NULL;
        topic->is_loaded = true;
    }
    return topic;
}

/* Adds what was counted for a topic to its row, before Python uses it. */
int tally_settle_topic(Kernel *kernel, const uint8_t *name, uint32_t length) {
    Tally *tally = kernel->tally;
    TopicTally *topic = tally->topic_room ? *topic_place(tally, name, length, hash_of(name, length)) : NULL;
    if (tally->passing && settle_topic(kernel, tally->passing))
        return -1;
    return topic ? settle_topic(kernel, topic) : 0;
}

/* Exchanges. */

static int bucket_of(double log_factor, int64_t value) {
    /* The same function of the same library as in `stats.rows.bucket_of`. */
    return value <= 0 ? -1 : (int)ceil(log((double)value) / log_factor);
}

static int measure(Measured *measured, int key, int64_t ns, int bucket) {
    Handshake *handshake = &measured->handshakes[key];
    Number *number = number_put(&measured->buckets, (uint32_t)key << 16 | (uint32_t)(bucket + 1));
    if (!number)
        return -1;
    number->value++;
    if (ns > handshake->maximum)
        handshake->maximum = ns;
    if (!handshake->count || ns < handshake->minimum)
        handshake->minimum = ns;
    handshake->count++;
    handshake->total += ns;
    return 0;
}

static int note_answer(Tally *tally, FlowTally *counts, int handshake, int asked_by, int64_t ns) {
    int bucket;
    if (ns < 0)
        return 0; /* the clock was set back */
    bucket = bucket_of(tally->log_factor, ns);
    return measure(&counts->measured, 2 * handshake + asked_by, ns, bucket) ||
                   measure(&tally->measured, 2 * handshake + asked_by, ns, bucket)
               ? -1
               : 0;
}

static int begin_exchange(FlowTally *counts, int side, const Packet *packet, int kind, int qos, int64_t ns) {
    Number *exchange = number_put(&counts->exchanges[side], (uint32_t)packet->packet_identifier);
    if (!exchange)
        return -1;
    if (exchange->kind == A_PUBLISH)
        counts->in_flight[side]--;
    exchange->kind = (uint8_t)kind;
    exchange->qos = (uint8_t)qos;
    exchange->phase = SENT;
    exchange->value = ns;
    if (kind == A_PUBLISH && ++counts->in_flight[side] > counts->in_flight_peak[side])
        counts->in_flight_peak[side] = counts->in_flight[side];
    return 0;
}

static int take_release(Tally *tally, FlowTally *counts, int from, const Packet *packet, int64_t ns) {
    uint32_t key = 2 * (uint32_t)packet->packet_identifier + (uint32_t)from;
    Number *exchange = number_find(&counts->exchanges[from], (uint32_t)packet->packet_identifier), *release;
    if (!number_find(&counts->releases, key)) {
        if (tally->releases < tally->max_releases) {
            release = number_put(&counts->releases, key);
            if (!release)
                return -1;
            release->value = ns;
            tally->releases++;
        } else {
            tally->missed_releases++;
        }
    }
    if (exchange && exchange->kind == A_PUBLISH)
        exchange->phase = RELEASED;
    return 0;
}

static int take_answer(Tally *tally, FlowTally *counts, int from, const Packet *packet, int64_t ns) {
    static const struct {
        uint8_t kind, qos, handshake;
    } ANSWERS[16] = {
        [PUBACK] = {A_PUBLISH, 1, PUBLISH_PUBACK},
        [PUBREC] = {A_PUBLISH, 2, PUBLISH_PUBREC},
        [PUBCOMP] = {A_PUBLISH, 2, PUBLISH_PUBCOMP},
        [SUBACK] = {A_SUBSCRIBE, 0, SUBSCRIBE_SUBACK},
        [UNSUBACK] = {AN_UNSUBSCRIBE, 0, UNSUBSCRIBE_UNSUBACK},
    };
    int asked_by = !from, kind = packet->kind;
    NumberMap *exchanges = &counts->exchanges[asked_by];
    Number *exchange = number_find(exchanges, (uint32_t)packet->packet_identifier);
    if (exchange && exchange->kind != ANSWERS[kind].kind)
        exchange = NULL;
    if (kind == PUBCOMP) {
        Number *release = number_find(&counts->releases, 2 * (uint32_t)packet->packet_identifier + (uint32_t)asked_by);
        if (release) {
            int64_t past = ns - release->value;
            number_remove(&counts->releases, release);
            tally->releases--;
            if (note_answer(tally, counts, PUBREL_PUBCOMP, asked_by, past))
                return -1;
        }
    }
    if (!exchange)
        return 0;
    if (exchange->qos == ANSWERS[kind].qos && (kind != PUBREC || exchange->phase == SENT) &&
        note_answer(tally, counts, ANSWERS[kind].handshake, asked_by, ns - exchange->value))
        return -1;
    if (kind == PUBREC && packet->reason < 0x80) {
        exchange->phase = RECEIVED;
        return 0;
    }
    if (exchange->kind == A_PUBLISH)
        counts->in_flight[asked_by]--;
    number_remove(exchanges, exchange);
    return 0;
}

/* Packets. */

static void count(Tally *tally, FlowTally *counts, int place, int64_t number) {
    counts->numbers[place] += number;
    tally->numbers[place] += number;
}

static int set_alias(Half *half, uint32_t alias, const uint8_t *name, uint32_t length) {
    PyObject *topic = PyBytes_FromStringAndSize((const char *)name, length);
    int failed = !topic || alias_set(half, alias, topic);
    Py_XDECREF(topic);
    return failed ? -1 : 0;
}

static int take_publish(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at) {
    Tally *tally = kernel->tally;
    FlowTally *counts = flow->tally;
    Half *half = &flow->half[from];
    int qos = packet->raw[0] >> 1 & 3, is_known;
    const uint8_t *name = packet->topic;
    uint32_t length = packet->topic_length;
    TopicTally *topic;
    if (!length && packet->alias >= 0 && (uint32_t)packet->alias < half->alias_room && half->aliases[packet->alias]) {
        name = (const uint8_t *)PyBytes_AS_STRING(half->aliases[packet->alias]);
        length = (uint32_t)PyBytes_GET_SIZE(half->aliases[packet->alias]);
    }
    topic = topic_of(kernel, name, length, at->ns);
    if (!topic)
        return -1;
    if (packet->alias >= 0) {
        count(tally, counts, (packet->topic_length ? ALIAS_SETS : ALIAS_HITS) + from, 1);
        if (!packet->topic_length)
            count(tally, counts, SAVED + from, length);
    }
    count(tally, counts, PAYLOAD + from, packet->payload_length);
    count(tally, counts, QOS + 4 * from + qos, 1);
    topic->numbers[MESSAGES + from]++;
    topic->numbers[TOPIC_BYTES + from] += packet->length;
    topic->numbers[TOPIC_PAYLOAD + from] += packet->payload_length;
    topic->numbers[TOPIC_QOS + 4 * from + qos]++;
    if (packet->raw[0] & 1) {
        count(tally, counts, RETAIN + from, 1);
        topic->numbers[TOPIC_RETAIN + from]++;
    }
    if (packet->raw[0] & 8) {
        count(tally, counts, DUP + from, 1);
        topic->numbers[TOPIC_DUP + from]++;
    }
    add_to_window(&topic->window, counts->last_ns / NS - (counts->last_ns % NS < 0), packet->length);
    topic->last_ns = at->ns;
    is_known = PySet_Contains(topic->clients[from], counts->client_number);
    if (is_known < 0)
        return -1;
    if (!is_known) {
        PyObject *result = PyObject_CallMethod(kernel->host, "client_of_topic", "OiO", topic->row, from, counts->client_number);
        if (!result)
            return -1;
        Py_DECREF(result);
    }
    /* Python counts the edge nodes of Sparkplug. */
    if (length >= 7 && !memcmp(name, "spBv1.0", 7) && !(packet->raw[0] & 8)) {
        PyObject *result = PyObject_CallMethod(kernel->host, "node_message", "Oiy#y#L", flow->state, from, (const char *)name,
                                               (Py_ssize_t)length, (const char *)packet->payload,
                                               (Py_ssize_t)packet->payload_length, (long long)at->ns);
        if (!result)
            return -1;
        Py_DECREF(result);
    }
    if (qos) {
        Number *running = number_find(&counts->exchanges[from], (uint32_t)packet->packet_identifier);
        if (!(running && running->kind == A_PUBLISH && packet->raw[0] & 8) &&
            begin_exchange(counts, from, packet, A_PUBLISH, qos, at->ns))
            return -1;
    }
    return packet->alias >= 0 && packet->topic_length ? set_alias(half, (uint32_t)packet->alias, packet->topic, length) : 0;
}

/* Counts a packet; DISCONNECT is for Python. */
int tally_packet(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at) {
    Tally *tally = kernel->tally;
    FlowTally *counts = flow->tally;
    int64_t now = at->ns, second = now / NS - (now % NS < 0);
    int place = 16 * from + packet->kind, asked_by = !from;
    if (from == INITIATOR) {
        if (now - counts->client_ns > counts->silence_ns) {
            /* After the first FIN nothing is expected from the client. */
            int64_t until = counts->closed_ns && counts->closed_ns < now ? counts->closed_ns : now;
            if (until - counts->client_ns > counts->silence_ns)
                counts->silence_ns = until - counts->client_ns;
        }
        counts->client_ns = now;
    }
    counts->last_ns = now;
    count(tally, counts, place, 1);
    count(tally, counts, BYTES + place, packet->length);
    add_to_window(&counts->window, second, packet->length);
    add_to_window(&tally->windows[0], second, packet->length);
    add_to_window(&tally->windows[1], second, packet->length);
    switch (packet->kind) {
    case PUBLISH: return take_publish(kernel, flow, from, packet, at);
    case PUBREL: return take_release(tally, counts, from, packet, now);
    case PUBACK: case PUBREC: case PUBCOMP: case SUBACK: case UNSUBACK: return take_answer(tally, counts, from, packet, now);
    case SUBSCRIBE: return begin_exchange(counts, from, packet, A_SUBSCRIBE, 0, now);
    case UNSUBSCRIBE: return begin_exchange(counts, from, packet, AN_UNSUBSCRIBE, 0, now);
    case PINGREQ:
        counts->pinged[from] = true;
        counts->ping_ns[from] = now;
        return 0;
    case PINGRESP:
        if (counts->pinged[asked_by] && note_answer(tally, counts, PINGREQ_PINGRESP, asked_by, now - counts->ping_ns[asked_by]))
            return -1;
        counts->pinged[asked_by] = false;
        return 0;
    }
    return 0;
}

bool tally_takes(const Packet *packet) { return packet->kind >= PUBLISH && packet->kind <= PINGRESP; }

/* Before and after Python reads a packet of a connection. */
int tally_give_flow(Kernel *kernel, const Flow *flow) {
    return store_window(kernel->tally, flow->tally->window_object, &flow->tally->window);
}

int tally_take_flow(Kernel *kernel, Flow *flow, int from, int64_t ns) {
    flow->tally->last_ns = ns;
    if (from == INITIATOR)
        flow->tally->client_ns = ns;
    return load_window(kernel->tally, flow->tally->window_object, &flow->tally->window);
}

/* Connections. */

static int import_numbers(NumberMap *map, PyObject *rows) {
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(rows); at++) {
        unsigned int key;
        int kind, qos, phase;
        long long value;
        Number *number;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(rows, at), "IiiiL", &key, &kind, &qos, &phase, &value))
            return -1;
        number = number_put(map, key);
        if (!number)
            return -1;
        number->kind = (uint8_t)kind;
        number->qos = (uint8_t)qos;
        number->phase = (uint8_t)phase;
        number->value = value;
    }
    return 0;
}

/* Takes over a connection from Python, by the answer of the host. */
int tally_begin(Kernel *kernel, Flow *flow, PyObject *answer) {
    FlowTally *counts = PyMem_RawCalloc(1, sizeof *counts);
    PyObject *exchanges[2], *releases;
    long long offsets[2], client_ns, closed_ns, last_ns, ping_ns[2];
    flow->tally = counts;
    if (!counts) {
        PyErr_NoMemory();
        return -1;
    }
    if (!PyArg_ParseTuple(answer, "OO!LLLLLLLiiiiO!O!O!", &counts->window_object, &PyLong_Type, &counts->client_number,
                          &offsets[0], &offsets[1], &last_ns, &client_ns, &closed_ns, &ping_ns[0], &ping_ns[1],
                          &counts->in_flight[0], &counts->in_flight[1], &counts->in_flight_peak[0],
                          &counts->in_flight_peak[1], &PyList_Type, &exchanges[0], &PyList_Type, &exchanges[1],
                          &PyList_Type, &releases)) {
        counts->window_object = counts->client_number = NULL;
        return -1;
    }
    Py_INCREF(counts->window_object);
    Py_INCREF(counts->client_number);
    counts->last_ns = last_ns;
    counts->client_ns = client_ns;
    counts->closed_ns = closed_ns;
    for (int side = 0; side < 2; side++) {
        flow->half[side].stream_offset = offsets[side];
        counts->pinged[side] = ping_ns[side] != INT64_MIN;
        counts->ping_ns[side] = ping_ns[side];
        if (import_numbers(&counts->exchanges[side], exchanges[side]))
            return -1;
    }
    return load_window(kernel->tally, counts->window_object, &counts->window) || import_numbers(&counts->releases, releases) ? -1 : 0;
}

void tally_forget(Flow *flow) {
    FlowTally *counts = flow->tally;
    if (!counts)
        return;
    flow->tally = NULL;
    Py_XDECREF(counts->window_object);
    Py_XDECREF(counts->client_number);
    numbers_clear(&counts->exchanges[0]);
    numbers_clear(&counts->exchanges[1]);
    numbers_clear(&counts->releases);
    numbers_clear(&counts->measured.buckets);
    PyMem_RawFree(counts);
}

static PyObject *rows_of(const NumberMap *map) {
    PyObject *rows = PyList_New(0);
    for (uint32_t at = 0; rows && at < map->room; at++) {
        const Number *number = &map->numbers[at];
        PyObject *row;
        if (!number->is_used)
            continue;
        row = Py_BuildValue("(IiiiL)", number->key, number->kind, number->qos, number->phase, (long long)number->value);
        if (!row || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static PyObject *handshakes_of(const Measured *measured) {
    PyObject *rows = PyList_New(0);
    for (int key = 0; rows && key < 16; key++) {
        const Handshake *handshake = &measured->handshakes[key];
        PyObject *row;
        if (!handshake->count)
            continue;
        row = Py_BuildValue("(iLLLL)", key, (long long)handshake->count, (long long)handshake->minimum,
                            (long long)handshake->maximum, (long long)handshake->total);
        if (!row || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

/* Gives the counts of a connection to Python, which counts it from then on. */
int tally_settle(Kernel *kernel, Flow *flow) {
    FlowTally *counts = flow->tally;
    PyObject *result;
    if (!counts)
        return 0;
    if (tally_give_flow(kernel, flow))
        return -1;
    result = PyObject_CallMethod(
        kernel->host, "counted", "Oy#NNLLNNNOOiiii", flow->state, (const char *)counts->numbers,
        (Py_ssize_t)sizeof counts->numbers, handshakes_of(&counts->measured), rows_of(&counts->measured.buckets),
        (long long)counts->last_ns, (long long)counts->silence_ns, rows_of(&counts->exchanges[0]),
        rows_of(&counts->exchanges[1]), rows_of(&counts->releases), counts->pinged[0] ? Py_True : Py_False,
        counts->pinged[1] ? Py_True : Py_False, counts->in_flight[0], counts->in_flight[1], counts->in_flight_peak[0],
        counts->in_flight_peak[1]);
    if (!result)
        return -1;
    Py_DECREF(result);
    tally_forget(flow);
    return 0;
}

/* Gives all counts to Python: no packet is counted here after that. */
int tally_settle_all(Kernel *kernel) {
    Tally *tally = kernel->tally;
    PyObject *result;
    if (!tally || tally->is_settled)
        return 0;
    tally->is_settled = true;
    for (uint32_t at = 0; at < kernel->flow_count; at++)
        if (tally_settle(kernel, kernel->flows[at]))
            return -1;
    for (uint32_t at = 0; at < tally->topic_room; at++)
        if (tally->topics[at] && settle_topic(kernel, tally->topics[at]))
            return -1;
    if (tally->passing && settle_topic(kernel, tally->passing))
        return -1;
    result = PyObject_CallMethod(kernel->host, "counted_all", "y#NNL", (const char *)tally->numbers,
                                 (Py_ssize_t)sizeof tally->numbers, handshakes_of(&tally->measured),
                                 rows_of(&tally->measured.buckets), (long long)tally->missed_releases);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Begins to count: into the statistics, with the current seconds of all captures and of this one. */
int tally_make(Kernel *kernel, PyObject *statistics, PyObject *whole, PyObject *capture, PyObject *other_topic, int64_t releases) {
    Tally *tally = PyMem_RawCalloc(1, sizeof *tally);
    volatile double factor = 1.02; /* or the compiler computes another logarithm */
    if (!tally) {
        PyErr_NoMemory();
        return -1;
    }
    kernel->tally = tally;
    tally->statistics = Py_NewRef(statistics);
    tally->window_objects[0] = Py_NewRef(whole);
    tally->window_objects[1] = Py_NewRef(capture);
    tally->other_topic = Py_NewRef(other_topic);
    tally->max_releases = releases;
    tally->log_factor = log(factor);
    tally->releases_name = PyUnicode_InternFromString("_releases");
    for (int at = 0; at < 5; at++)
        if (!(tally->window_names[at] = PyUnicode_InternFromString(WINDOW_NAMES[at])))
            return -1;
    return tally->releases_name ? tally_take(kernel) : -1;
}

void tally_free(Kernel *kernel) {
    Tally *tally = kernel->tally;
    if (!tally)
        return;
    kernel->tally = NULL;
    for (uint32_t at = 0; at < tally->topic_room; at++)
        if (tally->topics[at])
            free_topic(tally->topics[at]);
    if (tally->passing)
        free_topic(tally->passing);
    PyMem_RawFree(tally->topics);
    numbers_clear(&tally->measured.buckets);
    Py_XDECREF(tally->statistics);
    Py_XDECREF(tally->other_topic);
    Py_XDECREF(tally->window_objects[0]);
    Py_XDECREF(tally->window_objects[1]);
    Py_XDECREF(tally->releases_name);
    for (int at = 0; at < 5; at++)
        Py_XDECREF(tally->window_names[at]);
    PyMem_RawFree(tally);
}
