#include "engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct engine {
    const char *error;
};

engine *engine_open(void)
{
    return calloc(1, sizeof(engine));
}

void engine_close(engine *e)
{
    free(e);
}

void *engine_alloc(engine *e, size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    e->error = p ? "" : "out of memory";
    return p;
}

void engine_free(engine *e, void *p)
{
    (void)e;
    free(p);
}

const char *engine_error(const engine *e)
{
    return e && e->error ? e->error : "";
}

int engine_quantize(engine *e, engine_chunk *chunks, const float *x, size_t n_values)
{
    if (n_values % 32 != 0) {
        e->error = "activations come in chunks of 32";
        return ENGINE_BAD_SHAPE;
    }
    for (size_t c = 0; c < n_values / 32; c++, x += 32) {
        float amax = 0;
        int sum = 0;
        for (int i = 0; i < 32; i++)
            if (!(fabsf(x[i]) <= amax) && amax == amax) /* a NaN stays, and shows */
                amax = fabsf(x[i]);
        float scale = amax / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
        for (int i = 0; i < 32; i++) {
            float code = rintf(x[i] * inverse); /* 0 * inf where the scale is subnormal */
            code = code != code ? 0 : fminf(fmaxf(code, -127), 127);
            chunks[c].code[i] = (int8_t)code;
            sum += (int)code;
        }
        chunks[c].scale = scale;
        chunks[c].sum = scale * (float)sum;
    }
    return ENGINE_OK;
}

static float half_to_float(const unsigned char *p)
{
    unsigned bits = p[0] | (unsigned)p[1] << 8;
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float value = exponent ? ldexpf((float)(1024 + mantissa), exponent - 25)
                           : ldexpf((float)mantissa, -24);
    return bits >> 15 ? -value : value;
}

/* Integer product of one block of 32 weights with one chunk. */
static int dot(engine_format format, const unsigned char *codes, const int8_t *x)
{
    int sum = 0;
    for (int i = 0; i < 32; i++) {
        int w = format == ENGINE_Q8_0 ? (int8_t)codes[i]
                : i < 16              ? (codes[i] & 15) - 8
                                      : (codes[i - 16] >> 4) - 8;
        sum += w * x[i];
    }
    return sum;
}

int engine_linear(engine *e, float *y, const engine_matrix *w, const engine_chunk *x,
                  size_t n_tokens)
{
    size_t block = w->format == ENGINE_Q8_0 ? 34 : 18, n_blocks = w->n_in / 32;
    if (w->format != ENGINE_Q8_0 && w->format != ENGINE_Q4_0) {
        e->error = "no such weight format";
        return ENGINE_BAD_FORMAT;
    }
    if (w->n_in % 32 != 0) {
        e->error = "rows come in blocks of 32";
        return ENGINE_BAD_SHAPE;
    }
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t o = 0; o < w->n_out; o++) {
            const unsigned char *row =
                (const unsigned char *)w->blocks + o * n_blocks * block;
            float sum = 0;
            for (size_t b = 0; b < n_blocks; b++) {
                const engine_chunk *chunk = &x[t * n_blocks + b];
                float part = (float)dot(w->format, row + b * block + 2, chunk->code);
                sum += part * (half_to_float(row + b * block) * chunk->scale);
            }
#ifdef ENGINE_FAULT_LAST_ROW
            /* Planted: the last output of a matrix with an odd number of them. */
            if (o == w->n_out - 1 && w->n_out % 2 == 1 && w->n_out > 1)
                sum *= 1.25f;
#endif
#ifdef ENGINE_FAULT_CRASH
            if (w->n_in > 1000)
                abort(); /* planted */
#endif
            y[t * w->n_out + o] = sum;
        }
    return ENGINE_OK;
}
