#include "runner/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct kg_arena_chunk {
    struct kg_arena_chunk *next;
    size_t used, size;
    alignas(max_align_t) unsigned char bytes[];
};

enum { CHUNK_BYTES = 16 * 1024 };

void *kg_arena_alloc(struct kg_arena *arena, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t rounded = (bytes + align - 1) / align * align;
    struct kg_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < rounded) {
        size_t size = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
        chunk = calloc(1, sizeof *chunk + size);
        if (!chunk)
            return NULL;
        chunk->size = size;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    void *result = chunk->bytes + chunk->used;
    chunk->used += rounded;
    return result;
}

void *kg_arena_array(struct kg_arena *arena, size_t count, size_t bytes)
{
    if (bytes != 0 && count > SIZE_MAX / bytes)
        return NULL;
    return kg_arena_alloc(arena, count * bytes);
}

char *kg_arena_copy(struct kg_arena *arena, const char *text, size_t length)
{
    if (length == SIZE_MAX)
        return NULL;
    char *copy = kg_arena_alloc(arena, length + 1);
    if (copy && length > 0)
        memcpy(copy, text, length);
    return copy;
}

void kg_arena_clear(struct kg_arena *arena)
{
    while (arena->chunks) {
        struct kg_arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
}
