/* The TCP connections of a capture, by their endpoints: a hash table that only grows. */

#include "kernel.h"

static uint32_t hash_of(const uint8_t *key, int length) {
    /* Equal for both directions. */
    uint64_t ends[2] = {0, 0};
    int address = length == 12 ? 4 : 16;
    for (int side = 0; side < 2; side++) {
        uint64_t hash = 0xCBF29CE484222325u;
        for (int at = 0; at < address; at += 4) {
            uint32_t word;
            memcpy(&word, key + side * address + at, 4);
            hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 31;
        }
        hash ^= (uint64_t)key[2 * address + 2 * side] << 8 | key[2 * address + 2 * side + 1];
        hash *= 0xD6E8FEB86659FD93u;
        ends[side] = hash ^ hash >> 32;
    }
    return (uint32_t)(ends[0] + ends[1]);
}

static bool is_reverse(const uint8_t *key, const uint8_t *other, int length) {
    int address = length == 12 ? 4 : 16;
    return !memcmp(key, other + address, address) && !memcmp(key + address, other, address) &&
           !memcmp(key + 2 * address, other + 2 * address + 2, 2) && !memcmp(key + 2 * address + 2, other + 2 * address, 2);
}

Flow *flow_find(Kernel *kernel, const uint8_t *key, int length, int *from) {
    uint32_t mask = kernel->index_room - 1;
    if (!kernel->index_room)
        return NULL;
    for (uint32_t at = hash_of(key, length) & mask; kernel->index[at]; at = (at + 1) & mask) {
        Flow *flow = kernel->index[at];
        if (flow->key_length != length)
            continue;
        if (!memcmp(flow->key, key, length)) {
            *from = INITIATOR;
            return flow;
        }
        if (is_reverse(flow->key, key, length)) {
            *from = RESPONDER;
            return flow;
        }
    }
    return NULL;
}

static void place(Kernel *kernel, Flow *flow) {
    uint32_t mask = kernel->index_room - 1, at = hash_of(flow->key, flow->key_length) & mask;
    while (kernel->index[at])
        at = (at + 1) & mask;
    kernel->index[at] = flow;
}

Flow *flow_add(Kernel *kernel, const Segment *segment) {
    Flow *flow;
    if (kernel->flow_count == kernel->flow_room) {
        uint32_t room = kernel->flow_room ? 2 * kernel->flow_room : 1024;
        Flow **flows = PyMem_RawRealloc(kernel->flows, room * sizeof *flows), **index;
        if (!flows)
            return NULL;
        kernel->flows = flows;
        index = PyMem_RawCalloc(4 * (size_t)room, sizeof *index);
        if (!index)
            return NULL;
        PyMem_RawFree(kernel->index);
        kernel->index = index;
        kernel->flow_room = room;
        kernel->index_room = 4 * room;
        for (uint32_t at = 0; at < kernel->flow_count; at++)
            place(kernel, kernel->flows[at]);
    }
    flow = PyMem_RawCalloc(1, sizeof *flow);
    if (!flow)
        return NULL;
    memcpy(flow->key, segment->key, segment->key_length);
    flow->key_length = segment->key_length;
    flow->tag = segment->tag;
    kernel->flows[kernel->flow_count++] = flow;
    place(kernel, flow);
    return flow;
}

/* Frees what a flow needs only while it is open. */
void flow_forget(Flow *flow) {
    for (int side = 0; side < 2; side++) {
        Half *half = &flow->half[side];
        PyMem_RawFree(half->history);
        PyMem_RawFree(half->waiting);
        PyMem_RawFree(half->held);
        PyMem_RawFree(half->latest);
        half->history = half->waiting = NULL;
        half->held = NULL;
        half->latest = NULL;
        half->history_count = half->history_room = half->latest_count = 0;
        half->waiting_count = half->waiting_room = half->held_bytes = half->held_room = 0;
        for (uint32_t at = 0; at < half->alias_room; at++)
            Py_CLEAR(half->aliases[at]);
        PyMem_RawFree(half->aliases);
        half->aliases = NULL;
        half->alias_room = 0;
        Py_CLEAR(half->naming);
        Py_CLEAR(half->connection);
        Py_CLEAR(half->side);
        Py_CLEAR(half->history_of);
    }
    Py_CLEAR(flow->state);
    tally_forget(flow);
}

/* The state before the first segment; what pass 1 decided stays. */
void flow_restart(Flow *flow) {
    Flow before = *flow;
    flow_forget(flow);
    memset(flow, 0, sizeof *flow);
    memcpy(flow->key, before.key, sizeof before.key);
    flow->key_length = before.key_length;
    flow->tag = before.tag;
    flow->odd = before.odd;
}

void flows_clear(Kernel *kernel) {
    for (uint32_t at = 0; at < kernel->flow_count; at++) {
        flow_forget(kernel->flows[at]);
        PyMem_RawFree(kernel->flows[at]);
    }
    PyMem_RawFree(kernel->flows);
    PyMem_RawFree(kernel->index);
    kernel->flows = kernel->index = NULL;
    kernel->flow_count = kernel->flow_room = kernel->index_room = 0;
}
