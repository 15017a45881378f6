/* Whether a payload may contain a credential: never laxer than `secrets.forms.suspicions`.

Python searches, and hides, what this suspects.  A search for one character rules out most words. */

#include "kernel.h"

/* Words by a character that each of them contains, in lower case. */
static const struct {
    uint8_t sign;
    const char *word;
} LOW[] = {
    {'p', "pass"}, {'p', "pin"}, {'k', "key"}, {'k', "token"}, {'k', "psk"}, {'c', "secret"}, {'c', "credential"},
    {'g', "sig"}, {'h', "auth"}, {'w', "pwd"}, {'b', "bearer"}, {'b', "basic"}, {'q', "mqtt"}, {'q', "mqisdp"},
    {'_', "_live_"}, {'_', "_test_"}, {'_', "hf_"}, {'_', "whsec_"}, {'_', "npm_"}, {'_', "github"}, {'_', "_compressed"},
    {'_', "ghp_"}, {'_', "gho_"}, {'_', "ghu_"}, {'_', "ghs_"}, {'_', "ghr_"},
    {'-', " -p"}, {'-', " -u"}, {'-', "--user"}, {'-', "--pw"}, {'-', "sshpass"}, {'-', "\"-p\""}, {'-', "'-p'"},
    {'-', "-----begin"}, {'-', "sk-"}, {'-', "glpat-"}, {'-', "glrt-"}, {'-', "gldt-"}, {'-', "glptt-"},
    {'-', "glcbt-"}, {'-', "xapp-"}, {'-', "xox"}, {'-', "gocspx-"}, {'@', "://"}, {'@', ":\\"},
    {'j', "eyj"}, {'a', "akia"}, {'a', "asia"}, {'a', "aiza"}, {'g', "sg."}, {'y', "ya29."}, {'y', "ya."},
};

/* Programs whose options may be passwords (`secrets.notations`), beside something like an escape. */
static const char *const PROGRAMS[] = {"mosquitto_", "curl", "wget", "mysql", "psql", "plink", "pscp"};

static int hex_of(uint8_t byte) {
    return byte >= '0' && byte <= '9' ? byte - '0' : (byte | 0x20) >= 'a' && (byte | 0x20) <= 'f' ? (byte | 0x20) - 'a' + 10 : -1;
}

static int hex_pair(const uint8_t *at, const uint8_t *end) {
    return end - at >= 2 && hex_of(at[0]) >= 0 && hex_of(at[1]) >= 0 ? 16 * hex_of(at[0]) + hex_of(at[1]) : -1;
}

/* A letter, digit or underscore of Latin-1. */
static bool is_word(uint8_t byte) {
    if (byte < 0x80)
        return byte == '_' || (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z');
    return (byte >= 0xC0 && byte != 0xD7 && byte != 0xF7) || (byte && strchr("\xAA\xB2\xB3\xB5\xB9\xBA\xBC\xBD\xBE", byte));
}

/* Length of the escape or comment at a place of a text, as `secrets.marks` resolves it, and its character (-1: none). */
static uint32_t escape_length(const uint8_t *text, const uint8_t *at, const uint8_t *end, int *sign) {
    static const struct {
        const char *name;
        int sign;
    } ENTITIES[] = {{"quot;", '"'}, {"apos;", '\''}, {"lt;", '<'}, {"gt;", '>'}};
    const uint8_t *next = at + 1, *stop;
    *sign = -1;
    switch (*at) {
    case '\\':
        while (next < end && *next == '\\')
            next++;
        if (next - at > 8 || next == end || (*next != 'u' && *next != 'x'))
            return 0;
        if (*next == 'x' || (end - next >= 3 && next[1] == '0' && next[2] == '0')) {
            next += *next == 'x' ? 1 : 3;
            *sign = hex_pair(next, end);
            return *sign < 0 ? 0 : (uint32_t)(next + 2 - at);
        }
        if (end - next < 2 || next[1] != '{')
            return 0;
        next += 2;
        for (stop = next; stop < end && stop - next < 7 && *stop != '}';)
            stop++;
        if (stop == end || *stop != '}' || stop - next < 2)
            return 0;
        for (; next + 2 < stop; next++)
            if (*next != '0')
                return 0;
        *sign = hex_pair(next, end);
        return *sign < 0 ? 0 : (uint32_t)(stop + 1 - at);
    case '%':
        *sign = next < end && *next >= '2' && *next <= '7' ? hex_pair(next, end) : -1;
        return *sign < 0 ? 0 : 3;
    case '&':
        if (end - next >= 2 && *next == '#') {
            int digits = 0, value = 0;
            if (next[1] == 'x') {
                value = hex_pair(next + 2, end);
                if (value < 0 || end - next < 5 || next[4] != ';')
                    return 0;
                *sign = value;
                return 6;
            }
            for (next++; next < end && digits < 4 && *next >= '0' && *next <= '9'; digits++)
                value = 10 * value + *next++ - '0';
            if (digits < 2 || digits > 3 || next == end || *next != ';')
                return 0;
            *sign = value < 255 ? value : 255;
            return (uint32_t)(next + 1 - at);
        }
        for (int entity = 0; entity < 4; entity++) {
            size_t length = strlen(ENTITIES[entity].name);
            if ((size_t)(end - next) >= length && !memcmp(next, ENTITIES[entity].name, length)) {
                *sign = ENTITIES[entity].sign;
                return (uint32_t)length + 1;
            }
        }
        return 0;
    case '/':
        if (next == end)
            return 0;
        if (*next == '*') {
            for (stop = next + 1; stop < end && *stop != '*' && stop - next <= 257;)
                stop++;
            return stop + 1 < end && stop[0] == '*' && stop[1] == '/' && stop - next <= 257 ? (uint32_t)(stop + 2 - at) : 0;
        }
        if (*next != '/' || (at > text && (at[-1] == ':' || is_word(at[-1]))))
            return 0;
        for (stop = next + 1; stop < end && *stop != '\r' && *stop != '\n' && stop - next <= 257;)
            stop++;
        return stop < end && (*stop == '\r' || *stop == '\n') && stop - next <= 257 ? (uint32_t)(stop - at) : 0;
    }
    return 0;
}

static uint8_t lower(uint8_t byte) { return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte; }

/* Resolves the escapes of a text, and lowers it; returns its new length. */
static uint32_t resolve(const uint8_t *text, uint32_t length, uint8_t *out) {
    const uint8_t *at = text, *end = text + length;
    uint32_t size = 0;
    while (at < end) {
        int sign;
        uint32_t escape = escape_length(text, at, end, &sign);
        if (!escape) {
            out[size++] = lower(*at++);
            continue;
        }
        if (sign >= 0)
            out[size++] = lower((uint8_t)sign);
        at += escape;
    }
    return size;
}

static bool has_word(const uint8_t *low, uint32_t length, const bool *has) {
    for (uint32_t at = 0; at < sizeof LOW / sizeof *LOW; at++)
        if (has[LOW[at].sign] && memmem(low, length, LOW[at].word, strlen(LOW[at].word)))
            return true;
    return false;
}

static bool names_program(const uint8_t *low, uint32_t length) {
    for (uint32_t at = 0; at < sizeof PROGRAMS / sizeof *PROGRAMS; at++)
        if (memmem(low, length, PROGRAMS[at], strlen(PROGRAMS[at])))
            return true;
    return false;
}

/* Whether a part of an AUTH packet may be inside: its Authentication Method, and the property of its data. */
static bool may_hold_auth(const uint8_t *low, uint32_t length) {
    for (uint32_t at = 3; at + 1 < length; at++)
        if (low[at] == 0x16 && !low[at + 1] && low[at - 1] >= 0x20 && low[at - 1] < 0x7F && low[at - 2] >= 0x20 && low[at - 2] < 0x7F)
            return true;
    return false;
}

bool is_suspicious(const Kernel *kernel, const uint8_t *bytes, uint32_t length) {
    uint8_t stack[4096], *low = stack;
    bool has[256] = {false}, is_suspect = false;
    if (kernel->has_stems)
        return true;
    if (!length)
        return false;
    for (uint32_t at = 0; at < length; at++) {
        /* The first byte of compressed data, after digits as well. */
        if (bytes[at] < '0' || bytes[at] > '9' || !at) {
            if (bytes[at] == 0x1F || bytes[at] == 0x78 || bytes[at] == 0x28 || bytes[at] == 0x04)
                return true;
            if (bytes[at] < '0' || bytes[at] > '9')
                break;
        }
    }
    if (length > sizeof stack / 2) {
        low = PyMem_RawMalloc(2 * (size_t)length);
        if (!low)
            return true;
    }
    for (uint32_t at = 0; at < length; at++) {
        low[at] = lower(bytes[at]);
        has[low[at]] = true;
    }
    is_suspect = has_word(low, length, has) || (has[0x16] && may_hold_auth(low, length));
    if (!is_suspect && (has['%'] || has['&'] || has['\\'])) {
        /* A word may be written with escapes, or have a comment inside. */
        uint8_t *plain = low + length;
        uint32_t size = resolve(bytes, length, plain);
        for (uint32_t at = 0; at < size; at++)
            has[plain[at]] = true;
        is_suspect = has['-'] && (names_program(low, length) || names_program(plain, size));
        is_suspect = is_suspect || (size != length && has_word(plain, size, has));
    }
    if (low != stack)
        PyMem_RawFree(low);
    return is_suspect;
}
