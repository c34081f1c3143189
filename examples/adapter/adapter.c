/*
 * A kgate provider around engine.h: kgate's arguments in, the engine's out, its status back.
 * Entries that are left out are NULL, and their cells SKIP kernel-missing.
 */
#include <stdlib.h>
#include <string.h>

#include <kgate/device/host.h>
#include <kgate/kernels.h>

#include "engine/engine.h"

static engine *the_engine;

/* ---- the device: what is the engine's own of it; kgate/device/cuda.h serves CUDA ---- */

static int open_device(const struct kg_open_options *options)
{
    (void)options;
    the_engine = engine_open();
    return the_engine ? 0 : KG_E_MEMORY;
}
static void close_device(void)
{
    engine_close(the_engine);
    the_engine = NULL;
}
static int alloc(void **p, size_t bytes)
{
    return (*p = engine_alloc(the_engine, bytes)) ? 0 : KG_E_MEMORY;
}
static int release(void *p)
{
    engine_free(the_engine, p);
    return 0;
}
static const char *last_error(void)
{
    return engine_error(the_engine);
}

static const struct kg_device_ops device =
    KG_HOST_DEVICE(open_device, close_device, alloc, release, last_error);

/* ---- the kernels ---- */

static int status(int engine_status)
{
    return engine_status == ENGINE_OK           ? 0
           : engine_status == ENGINE_BAD_FORMAT ? KG_E_UNSUPPORTED
                                                : KG_E_INVALID;
}

/* kgate has codes, scales and sums in three arrays, this engine in one of structs. */
static int quantize_q8_1(const float *x, int8_t *q, float *d, float *s, int64_t rows,
                         int64_t cols, struct CUstream_st *stream)
{
    (void)stream;
    size_t n = (size_t)(rows * cols / 32);
    engine_chunk *chunks = malloc((n + 1) * sizeof *chunks);
    int rc = chunks
                 ? status(engine_quantize(the_engine, chunks, x, (size_t)(rows * cols)))
                 : KG_E_MEMORY;
    for (size_t i = 0; i < n && rc == 0; i++) {
        memcpy(q + 32 * i, chunks[i].code, 32);
        d[i] = chunks[i].scale;
        s[i] = chunks[i].sum;
    }
    free(chunks);
    return rc;
}

static int stage_b(int type, const void *w, const int8_t *q, const float *d,
                   const float *s, float *y, int64_t in, int64_t out, int64_t m,
                   struct CUstream_st *stream)
{
    (void)s, (void)stream;
    if (type != KG_TYPE_Q4_0 && type != KG_TYPE_Q8_0)
        return KG_E_UNSUPPORTED; /* the engine has others in other functions: SKIP */
    engine_matrix matrix = {.format = type == KG_TYPE_Q4_0 ? ENGINE_Q4_0 : ENGINE_Q8_0,
                            .n_in = (size_t)in,
                            .n_out = (size_t)out,
                            .blocks = w};
    size_t n = (size_t)(m * in / 32);
    engine_chunk *chunks = malloc((n + 1) * sizeof *chunks);
    if (!chunks)
        return KG_E_MEMORY;
    for (size_t i = 0; i < n; i++) {
        memcpy(chunks[i].code, q + 32 * i, 32);
        chunks[i].scale = d[i];
    }
    int rc = status(engine_linear(the_engine, y, &matrix, chunks, (size_t)m));
    free(chunks);
    return rc;
}

static const struct kg_matvec_ops matvec = {
    .size = sizeof matvec, .quantize_q8_1 = quantize_q8_1, .stage_b = stage_b};

const struct kg_provider kgate_provider = {
    .abi = KG_PROVIDER_ABI,
    .size = sizeof kgate_provider,
    .name = "example-engine",
    .build_id = __VERSION__,
    .device = &device,
    .matvec = &matvec,
};
