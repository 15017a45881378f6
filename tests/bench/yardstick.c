/* The yardstick of the benchmark: frames of a pcapng file -> TCP streams in order -> MQTT packets -> JSON Lines.

   It shows what the machine allows: no state of MQTT, no checks, no limits, only frames as the generator writes them
   (Ethernet, one VLAN tag, IPv4 and IPv6, connections with their SYN).  The last line is the number of packets. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 18, WAITING = 64 };
typedef struct { const uint8_t *at; uint32_t sequence, size; } Piece;
typedef struct Stream {
  uint8_t key[36], key_size, version, server, has_begun, *bytes;
  uint32_t next, held, room, number, waiting;
  Piece pieces[WAITING];
  struct Stream *peer;
} Stream;
static Stream *slots[SLOTS];
static uint32_t packets, frame, connections;
static uint64_t time_ns;
static const char *names[] = {"", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe",
  "suback", "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth"};
static uint32_t be16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }
static uint32_t be32(const uint8_t *at) { return be16(at) << 16 | be16(at + 2); }
static uint32_t le32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return value; }
static Stream *stream_of(const uint8_t *key, int size) {
  uint32_t hash = 2166136261u;
  for (int i = 0; i < size; i++) hash = (hash ^ key[i]) * 16777619u;
  uint32_t slot = (hash ^ hash >> 15) % SLOTS;
  for (; slots[slot]; slot = (slot + 1) % SLOTS)
    if (slots[slot]->key_size == size && !memcmp(slots[slot]->key, key, size)) return slots[slot];
  Stream *stream = slots[slot] = calloc(1, sizeof(Stream));
  memcpy(stream->key, key, size);
  return stream->key_size = size, stream;
}
static void text(const uint8_t *at, uint32_t size) {
  for (uint32_t i = 0; i < size; i++) {
    if (at[i] == '"' || at[i] == '\\') putchar_unlocked('\\');
    if (at[i] < 32 || at[i] > 126) printf("\\u%04x", at[i]);
    else putchar_unlocked(at[i]);
  }
}
static void packet(Stream *stream, const uint8_t *at, uint32_t head, uint32_t size) {
  const uint8_t *body = at + head, *end = at + size, *payload = body;
  int type = at[0] >> 4, qos = at[0] >> 1 & 3;
  printf("{\"event\":\"packet\",\"frame\":%u,\"timestamp_ns\":%llu,\"connection\":%u,\"direction\":\"%s\",", frame,
         (unsigned long long)time_ns, stream->number, stream->server ? "server_to_client" : "client_to_server");
  printf("\"packet\":%u,\"type\":\"%s\",\"length\":%u", packets++, names[type], size);
  if (type == 1) stream->version = stream->peer->version = body[2 + be16(body)];
  if (type == 3) {
    payload += 2 + be16(body);
    printf(",\"qos\":%d,\"topic_name\":\"", qos), text(body + 2, be16(body));
    if (qos) printf("\",\"packet_identifier\":%u,\"payload\":\"", be16(payload)), payload += 2;
    else printf("\",\"payload\":\"");
    if (stream->version == 5) {
      uint32_t length = 0, shift = 0;
      do length |= (*payload & 127u) << shift, shift += 7; while (*payload++ & 128);
      payload += length;
    }
    text(payload, end - payload), putchar_unlocked('"');
  } else if (type >= 4 && type <= 11) printf(",\"packet_identifier\":%u", be16(body));
  puts("}");
}
static void append(Stream *stream, const uint8_t *at, uint32_t size) {
  uint32_t start = 0, left, needed = stream->held + size;
  if (needed > stream->room) stream->bytes = realloc(stream->bytes, stream->room = 2 * needed);
  memcpy(stream->bytes + stream->held, at, size);
  stream->held = needed, stream->next += size;
  while ((left = stream->held - start) >= 2) {
    uint32_t length = 0, head = 1, shift = 0;
    const uint8_t *packet_start = stream->bytes + start;
    do length |= (packet_start[head] & 127u) << shift, shift += 7; while (packet_start[head++] & 128 && head < left);
    if (packet_start[head - 1] & 128 || left < head + length) break;
    packet(stream, packet_start, head, head + length);
    start += head + length;
  }
  memmove(stream->bytes, stream->bytes + start, stream->held -= start);
}
static int take(Stream *stream, Piece piece) { /* 1: used up, 0: not its turn */
  int32_t ahead = (int32_t)(piece.sequence - stream->next);
  if (ahead > 0) return 0;
  if ((uint32_t)-ahead < piece.size) append(stream, piece.at - ahead, piece.size + ahead);
  return 1;
}
static void segment(const uint8_t *key, int key_size, const uint8_t *tcp, const uint8_t *end) {
  Stream *stream = stream_of(key, key_size);
  uint32_t sequence = be32(tcp + 4), size = end - tcp - (tcp[12] >> 4) * 4;
  if (tcp[13] & 2) {
    uint8_t other[36], address = (key_size - 4) / 2;
    memcpy(other, key + address, address), memcpy(other + address, key, address);
    memcpy(other + 2 * address, key + 2 * address + 2, 2), memcpy(other + 2 * address + 2, key + 2 * address, 2);
    stream->peer = stream_of(other, key_size), stream->peer->peer = stream;
    if ((stream->server = tcp[13] >> 4 & 1) == 0) stream->number = stream->peer->number = connections++;
    stream->next = sequence + 1, stream->held = stream->waiting = 0, stream->has_begun = 1;
  } else if (size && stream->has_begun) {
    Piece piece = {end - size, sequence, size};
    if (!take(stream, piece)) { if (stream->waiting < WAITING) stream->pieces[stream->waiting++] = piece; }
    else for (uint32_t i = 0; i < stream->waiting; i++)
      if (take(stream, stream->pieces[i])) stream->pieces[i] = stream->pieces[--stream->waiting], i = -1u;
  }
}

int main(int count, char **words) {
  FILE *file = count > 1 ? fopen(words[1], "rb") : NULL;
  if (!file || fseek(file, 0, SEEK_END)) return 1;
  size_t size = ftell(file);
  rewind(file);
  uint8_t *bytes = malloc(size), *at = bytes, *stop = at + fread(bytes, 1, size, file);
  for (; at + 12 <= stop; at += le32(at + 4)) {
    if (le32(at) != 6) continue;
    const uint8_t *ip = at + 28 + 14;
    frame++, time_ns = (uint64_t)le32(at + 12) << 32 | le32(at + 16);
    uint32_t kind = be16(ip - 2);
    if (kind == 0x8100) kind = be16(ip + 2), ip += 4;
    if (kind == 0x800) segment(ip + 12, 12, ip + (ip[0] & 15) * 4, ip + be16(ip + 2));
    else segment(ip + 8, 36, ip + 40, ip + 40 + be16(ip + 4));
  }
  printf("%u\n", packets);
}
