#include "runner/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "kgate/status.h"

static size_t slots_for(size_t expected)
{
    size_t slots = 16;
    while (slots < expected * 2)
        slots *= 2;
    return slots;
}

int kg_names_init(struct kg_names *names, size_t expected)
{
    memset(names, 0, sizeof *names);
    if (expected > UINT32_MAX / 4)
        return KG_E_MEMORY;
    /* An unseeded table is slower under attack, not wrong: a failure may be ignored. */
    if (getrandom(&names->seed, sizeof names->seed, GRND_NONBLOCK) < 0)
        names->seed = (uint64_t)(uintptr_t)names;
    size_t slots = slots_for(expected);
    names->slots = calloc(slots, sizeof names->slots[0]);
    names->mask = slots - 1;
    return names->slots ? KG_OK : KG_E_MEMORY;
}

void kg_names_free(struct kg_names *names)
{
    free(names->slots);
    memset(names, 0, sizeof *names);
}

static struct kg_name_slot *lookup(const struct kg_names *names, const char *name,
                                   uint64_t hash)
{
    size_t at = (size_t)hash & names->mask;
    uint32_t tag = (uint32_t)(hash >> 32);
    for (;; at = (at + 1) & names->mask) {
        struct kg_name_slot *slot = &names->slots[at];
        if (!slot->name || (slot->tag == tag && strcmp(slot->name, name) == 0))
            return slot;
    }
}

static uint64_t hash_of(const struct kg_names *names, const char *name)
{
    return XXH3_64bits_withSeed(name, strlen(name), names->seed);
}

static int grow(struct kg_names *names)
{
    struct kg_names bigger = *names;
    size_t slots = (names->mask + 1) * 2;
    bigger.slots = calloc(slots, sizeof bigger.slots[0]);
    if (!bigger.slots)
        return KG_E_MEMORY;
    bigger.mask = slots - 1;
    for (size_t i = 0; i <= names->mask; i++) {
        struct kg_name_slot *slot = &names->slots[i];
        if (slot->name)
            *lookup(&bigger, slot->name, hash_of(names, slot->name)) = *slot;
    }
    free(names->slots);
    *names = bigger;
    return KG_OK;
}

int kg_names_add(struct kg_names *names, const char *name, uint32_t *index)
{
    if (names->count * 2 > names->mask)
        KG_TRY(grow(names));
    uint64_t hash = hash_of(names, name);
    struct kg_name_slot *slot = lookup(names, name, hash);
    if (slot->name) {
        *index = slot->index;
        return KG_E_INVALID;
    }
    slot->name = name;
    slot->tag = (uint32_t)(hash >> 32);
    slot->index = *index;
    names->count++;
    return KG_OK;
}

int64_t kg_names_find(const struct kg_names *names, const char *name)
{
    if (!names->slots)
        return -1;
    struct kg_name_slot *slot = lookup(names, name, hash_of(names, name));
    return slot->name ? (int64_t)slot->index : -1;
}
