/* A map from small numbers to values, for packet identifiers and buckets: open addressing, in memory of its own. */

#include "kernel.h"

static uint32_t place_of(const NumberMap *map, uint32_t key) { return key * 0x9E3779B1u >> 7 & (map->room - 1); }

Number *number_find(const NumberMap *map, uint32_t key) {
    if (!map->room)
        return NULL;
    for (uint32_t at = place_of(map, key); map->numbers[at].is_used; at = (at + 1) & (map->room - 1))
        if (map->numbers[at].key == key)
            return &map->numbers[at];
    return NULL;
}

/* The entry of a key, empty if it is new; NULL without memory. */
Number *number_put(NumberMap *map, uint32_t key) {
    Number *known = number_find(map, key);
    uint32_t at;
    if (known)
        return known;
    if (2 * (map->count + 1) > map->room) {
        NumberMap larger = {.room = map->room ? 2 * map->room : 8, .count = map->count};
        larger.numbers = PyMem_RawCalloc(larger.room, sizeof *larger.numbers);
        if (!larger.numbers) {
            PyErr_NoMemory();
            return NULL;
        }
        for (uint32_t old = 0; old < map->room; old++) {
            if (!map->numbers[old].is_used)
                continue;
            for (at = place_of(&larger, map->numbers[old].key); larger.numbers[at].is_used;)
                at = (at + 1) & (larger.room - 1);
            larger.numbers[at] = map->numbers[old];
        }
        PyMem_RawFree(map->numbers);
        *map = larger;
    }
    for (at = place_of(map, key); map->numbers[at].is_used;)
        at = (at + 1) & (map->room - 1);
    map->numbers[at] = (Number){.key = key, .is_used = true};
    map->count++;
    return &map->numbers[at];
}

void number_remove(NumberMap *map, Number *number) {
    uint32_t mask = map->room - 1, hole = (uint32_t)(number - map->numbers), at = hole;
    for (;;) {
        at = (at + 1) & mask;
        if (!map->numbers[at].is_used)
            break;
        /* An entry stays if its own place is after the hole. */
        if (((at - place_of(map, map->numbers[at].key)) & mask) < ((at - hole) & mask))
            continue;
        map->numbers[hole] = map->numbers[at];
        hole = at;
    }
    map->numbers[hole].is_used = false;
    map->count--;
}

void numbers_clear(NumberMap *map) {
    PyMem_RawFree(map->numbers);
    *map = (NumberMap){0};
}
