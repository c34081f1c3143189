/*
 * runner/arena.h: memory that is freed all at once.
 */
#ifndef KG_RUNNER_ARENA_H
#define KG_RUNNER_ARENA_H

#include <stddef.h>

struct kg_arena_chunk;

/* Start with all zero. */
struct kg_arena {
    struct kg_arena_chunk *chunks;
};

/* Zeroed, aligned for any type. NULL if memory is gone. bytes may be 0. */
void *kg_arena_alloc(struct kg_arena *arena, size_t bytes);
/* An array; NULL also if count * bytes overflows. */
void *kg_arena_array(struct kg_arena *arena, size_t count, size_t bytes);
/* A NUL-terminated copy of `length` bytes. */
char *kg_arena_copy(struct kg_arena *arena, const char *text, size_t length);
void kg_arena_clear(struct kg_arena *arena);

#endif
