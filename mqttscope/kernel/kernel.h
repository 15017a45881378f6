/* The native kernel: reads ordinary MQTT connections of a capture file without Python.

A run has two passes over the mapped file.  `survey` (pass 1) follows every TCP connection and marks those *odd* in which
anything is unusual: their frames go to Python, from the first one.  The other connections are ordinary from their SYN
to their end, and pass 2 (`module.c`) reads them here.  Both passes run the same code, so pass 2 meets no surprise.

Every function that finds something unusual returns a reason (`enum`, above 0) and 0 otherwise. */

#ifndef MQTTSCOPE_KERNEL_H
#define MQTTSCOPE_KERNEL_H

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define NS 1000000000LL
#define NEVER INT64_MAX

enum { INITIATOR, RESPONDER };
enum { UNSEEN, OPEN, ENDED, RESET };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

/* Why a connection is odd; `Kernel.reasons` counts them. */
enum {
    ORDINARY, JOINED, HANDSHAKE, NUMBERS, STAMPS, WINDOW, CHECKSUM, COPY, BEGINNING, OVERLAP, WAITING, GAP, TIMEOUT, RESETTING,
    REUSED, TAGS, UNREADABLE, PROTOCOL, MALFORMED, LARGE, UNFINISHED, REASONS
};

/* One captured frame, in the mapped file. */
typedef struct {
    const uint8_t *bytes;
    uint32_t length, original, number, interface;
    int64_t ns;
    uint32_t link;
} Frame;

typedef struct {
    uint32_t link;
    uint64_t multiplier;
} Interface;

/* A mapped capture file, and the position of a reader in it. */
typedef struct {
    const uint8_t *data;
    size_t size, at;
    bool swapped, next_generation;
    uint32_t scale, header, link, number;
    Interface *interfaces;
    uint32_t interface_count;
} Capture;

typedef struct {
    uint8_t key[36]; /* as `net.segment.Segment.key`, without the tag */
    uint8_t key_length, flags;
    uint16_t window, tag;
    uint32_t sequence, acknowledgment, length, frame;
    int64_t ns;
    const uint8_t *payload, *options;
    uint32_t options_length;
    int64_t acknowledged; /* position in the other stream, if the segment itself proves it, else -1 */
    bool wrong; /* its checksum */
} Segment;

/* A delivered or waiting part of a stream. */
typedef struct {
    int64_t start;
    uint32_t length;
    const uint8_t *bytes;
} Piece;

typedef struct {
    uint32_t frame;
    int64_t ns, end;
} Latest;

#define ATTRIBUTES 26
#define HISTORY 32
#define LATEST 16

/* One direction of a connection: TCP as in `net.reassembly.HalfStream`, and the packets in it. */
typedef struct {
    uint8_t state;
    bool stamped;
    uint32_t sequence, initial, first_stamp, last_stamp;
    int64_t first_stamp_ns, last_stamp_ns;
    int64_t offset, acknowledged, sent, fin, fin_ns, deadline;
    uint32_t fin_frame;
    uint32_t data_segments, empty_segments, retransmitted_segments, duplicate_segments, out_of_order_segments;
    uint32_t keep_alive_probes, copied_segments;
    int64_t retransmitted_bytes;
    Piece *history;
    uint8_t history_count, history_room;
    Piece *waiting;
    uint32_t waiting_count, waiting_room, waiting_bytes;
    uint8_t *held;
    uint32_t held_bytes, held_room;
    bool begun;
    uint32_t packets;
    int64_t bytes, stream_offset, last_ns;
    Latest *latest;
    uint8_t latest_at, latest_count;
    PyObject **aliases; /* topics, or their JSON, by alias */
    uint32_t alias_room, alias_bytes;
    PyObject *naming;
    PyObject *connection, *side, *history_of; /* for events */
} Half;

/* A map from small numbers. */
typedef struct {
    uint32_t key;
    bool is_used;
    uint8_t kind, qos, phase;
    int64_t value;
} Number;

typedef struct {
    Number *numbers;
    uint32_t count, room;
} NumberMap;

/* Statistics: packets of the current second, latencies, and the counts of a topic and of a connection. */
typedef struct {
    int64_t second, packets, bytes, peak_packets, peak_bytes;
} Window;

typedef struct {
    int64_t count, minimum, maximum, total;
} Handshake;

typedef struct {
    Handshake handshakes[16];
    NumberMap buckets;
} Measured;

#define TALLIED 96
#define TOPIC_TALLIED 18

typedef struct {
    uint8_t *name;
    uint32_t length, hash;
    PyObject *row, *window_object, *clients[2];
    bool is_loaded;
    int64_t numbers[TOPIC_TALLIED], last_ns;
    Window window;
} TopicTally;

typedef struct {
    int64_t numbers[TALLIED], last_ns, client_ns, silence_ns, closed_ns, ping_ns[2];
    Window window;
    Measured measured;
    NumberMap exchanges[2], releases;
    bool pinged[2];
    int in_flight[2], in_flight_peak[2];
    PyObject *window_object, *client_number;
} FlowTally;

typedef struct {
    PyObject *statistics, *window_objects[2], *other_topic, *window_names[5], *releases_name;
    int64_t numbers[TALLIED], releases, max_releases, missed_releases;
    double log_factor;
    Window windows[2];
    Measured measured;
    TopicTally **topics, *passing;
    uint32_t topic_count, topic_room;
    bool is_settled;
} Tally;

typedef struct {
    uint8_t key[36]; /* from the initiator */
    uint8_t key_length, odd, closed, version;
    uint16_t tag;
    bool is_connected, is_ready, is_answered, awaits_answer;
    uint32_t first_frame, last_frame;
    int64_t opened_ns, last_ns, closed_ns;
    Half half[2];
    uint32_t generation;
    PyObject *state; /* of the host */
    FlowTally *tally;
} Flow;

typedef struct {
    PyObject_HEAD
    PyObject *host, *sink, *opening, *counting, *packets_name, *due_name;
    Py_buffer buffer;
    Capture capture;
    bool running, is_given; /* whether Python counts at the moment */
    Flow **flows, **index;
    uint32_t flow_count, flow_room, index_room;
    int64_t latest_ns, clock_ns, segment_ns;
    bool has_clock, has_intervals, has_damaged_empty;
    int64_t held_bytes;
    uint64_t packets, frames_here, frames_elsewhere, flows_here, odd_bytes, reasons[REASONS];
    uint32_t generation; /* changes when the report forgets the connections that it has named */
    uint64_t allowed[6][16][4]; /* reason codes by version and packet type */
    /* Lines. */
    char *out;
    size_t out_size, out_room;
    int64_t second_ns;
    PyObject *time_before, *time_after;
    bool divided;
    PyObject *topics, *blocks, *payloads, *names, *outcomes;
    PyObject *reason_names[2][2]; /* JSON by code: of SUBACK and UNSUBACK, before 5.0 and in it */
    int64_t payload_bytes;
    /* Events. */
    PyObject *feed, *types, *event_type, *directions, *no_properties, *capture_name, *flow_register, *zero, *empty_tuple;
    PyObject *attributes[ATTRIBUTES];
    uint64_t wire_bytes, captured_bytes;
    int64_t first_ns, last_ns;
    bool shows_secrets, has_stems;
    uint32_t payload_limit;
    Tally *tally; /* NULL if packets are not counted */
} Kernel;

/* capture.c */
int capture_open(Capture *capture, const uint8_t *data, size_t size);
int capture_next(Capture *capture, Frame *frame); /* 1: a frame, 0: the end, -1: not ordinary */
void capture_rewind(Capture *capture);
int capture_copy(Capture *capture); /* makes a copied reader independent; -1 without memory */
void capture_close(Capture *capture);

/* segment.c */
enum { NO_TCP, A_SEGMENT, UNUSUAL };
int segment_of(const Frame *frame, Segment *segment);
bool time_stamp(const uint8_t *options, uint32_t length, uint32_t *stamp);

/* flow_table.c */
Flow *flow_find(Kernel *kernel, const uint8_t *key, int length, int *from);
Flow *flow_add(Kernel *kernel, const Segment *segment);
void flow_restart(Flow *flow);
void flow_forget(Flow *flow);
void flows_clear(Kernel *kernel);

/* tcp.c */
int tcp_take(Kernel *kernel, Flow *flow, int from, Segment *segment);
int tcp_end(Kernel *kernel, Flow *flow);

/* clock.c */
int clock_is_steady(Kernel *kernel, const Segment *first, int64_t jump_ns);

/* stream.c */
int stream_take(Kernel *kernel, Flow *flow, int from, const uint8_t *bytes, uint32_t length, const Segment *at);

/* packet.c */
typedef struct {
    const uint8_t *raw, *topic, *block, *payload;
    uint32_t length, header, topic_length, block_length, payload_length;
    int32_t packet_identifier; /* -1: none */
    int32_t alias;             /* -1: none */
    int32_t reason;            /* -1: left out */
    uint8_t kind, version;
    bool is_frequent;
} Packet;
int packet_read(const Kernel *kernel, uint8_t version, Packet *packet);
int utf8_end(const uint8_t *bytes, uint32_t length);

/* host.c: calls of Python.  -1 with an exception set. */
int host_opened(Kernel *kernel, Flow *flow, const Segment *segment);
int host_data(Kernel *kernel, Flow *flow, int from, const uint8_t *bytes, uint32_t length, const Segment *at);
int host_packet(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at);
int host_ready(Kernel *kernel, Flow *flow);
int host_introduce(Kernel *kernel, Flow *flow);
int host_reset(Kernel *kernel, Flow *flow, const Segment *segment, int from);
int host_copied(Kernel *kernel, Flow *flow);
int host_ended(Kernel *kernel, Flow *flow, int from, const char *how, uint32_t frame, int64_t ns);
int host_closed(Kernel *kernel, Flow *flow, const char *how, uint32_t frame, int64_t ns);
int host_unusual_key(Kernel *kernel, const Frame *frame, bool *is_segment, Segment *segment);
int host_unusual(Kernel *kernel, const Frame *frame, bool *is_segment);
int host_give_count(Kernel *kernel);
int host_take_count(Kernel *kernel);
PyObject *host_standing(Flow *flow);
void note_latest(Half *half, uint32_t frame, int64_t ns, int64_t end);

/* lines.c */
int line_write(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at);
int out_append(Kernel *kernel, const char *bytes, size_t length);
int out_flush(Kernel *kernel);
int alias_set(Half *half, uint32_t alias, PyObject *topic);

/* events.c */
int events_prepare(Kernel *kernel);
bool event_is_frequent(const Packet *packet);
int event_feed(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at);
int event_segment(Kernel *kernel, Flow *flow, int from, int64_t end, int64_t acknowledged, const Segment *at);
int event_connect(Kernel *kernel, Flow *flow, PyObject *connection);

/* number_map.c */
Number *number_find(const NumberMap *map, uint32_t key);
Number *number_put(NumberMap *map, uint32_t key);
void number_remove(NumberMap *map, Number *number);
void numbers_clear(NumberMap *map);

/* tally.c */
int tally_make(Kernel *kernel, PyObject *statistics, PyObject *whole, PyObject *capture, PyObject *other_topic, int64_t releases);
void tally_free(Kernel *kernel);
int tally_give(Kernel *kernel);
int tally_take(Kernel *kernel);
int tally_begin(Kernel *kernel, Flow *flow, PyObject *answer);
void tally_forget(Flow *flow);
bool tally_takes(const Packet *packet);
int tally_packet(Kernel *kernel, Flow *flow, int from, const Packet *packet, const Segment *at);
int tally_give_flow(Kernel *kernel, const Flow *flow);
int tally_take_flow(Kernel *kernel, Flow *flow, int from, int64_t ns);
int tally_settle(Kernel *kernel, Flow *flow);
int tally_settle_all(Kernel *kernel);
int tally_settle_topic(Kernel *kernel, const uint8_t *name, uint32_t length);

/* suspicion.c */
bool is_suspicious(const Kernel *kernel, const uint8_t *bytes, uint32_t length);

#endif
