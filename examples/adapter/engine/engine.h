/*
 * engine.h: a small inference engine, as somebody else may have written it.
 *
 * Nothing here knows of kgate. It has a context, tensors with an owner, positive error codes,
 * activations that it quantizes into structs of its own, and rows that it calls columns.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct engine engine;

typedef enum { ENGINE_Q4_0 = 1, ENGINE_Q8_0 = 2 } engine_format;

enum {
    ENGINE_OK = 0,
    ENGINE_BAD_FORMAT = 10,
    ENGINE_BAD_SHAPE = 11,
    ENGINE_NO_MEMORY = 12
};

typedef struct {
    engine_format format;
    size_t n_in, n_out; /* blocks of 32 along n_in, packed */
    const void *blocks;
} engine_matrix;

/* 32 activations: code * scale. */
typedef struct {
    float scale, sum;
    int8_t code[32];
} engine_chunk;

engine *engine_open(void);
void engine_close(engine *e);
void *engine_alloc(engine *e, size_t bytes);
void engine_free(engine *e, void *p);
const char *engine_error(const engine *e);

/* chunks[n_values / 32] = x[n_values] */
int engine_quantize(engine *e, engine_chunk *chunks, const float *x, size_t n_values);
/* y[n_tokens][n_out] = w * x, x as chunks[n_tokens][n_in / 32] */
int engine_linear(engine *e, float *y, const engine_matrix *w, const engine_chunk *x,
                  size_t n_tokens);

#endif
