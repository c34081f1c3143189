#include "runner/bench/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/bench/timer.h"

enum { noise_pairs = 5, matrix = 8192, workspace_bytes = 64 << 20 };

struct bench {
    const struct kg_device_ops *device;
    const struct kg_ceiling_ops *ops;
    struct CUstream_st *stream;
    uint8_t *memory, *workspace;
    size_t bytes; /* of memory, a multiple of 4 */
    const char *doing;
};

/* One thing that is timed: the launch, on its own parts of the memory. */
typedef int launch_fn(const struct bench *b);

static int launch_copy(const struct bench *b)
{
    return b->ops->copy(b->memory, b->memory + b->bytes / 2, b->bytes / 2, b->stream);
}

static int launch_read(const struct bench *b)
{
    return b->ops->read_sweep(b->memory, b->bytes, (uint32_t *)b->workspace, b->stream);
}

static int launch_empty(const struct bench *b)
{
    return b->ops->empty(b->stream);
}

static int matmul(const struct bench *b, int type, size_t in_bytes)
{
    size_t part = (size_t)matrix * matrix * in_bytes;
    return b->ops->matmul(type, b->memory, b->memory + part, b->memory + 2 * part, matrix,
                          matrix, matrix, b->workspace, workspace_bytes, b->stream);
}

static int launch_f16(const struct bench *b)
{
    return matmul(b, KG_TYPE_F16, 2);
}

static int launch_int8(const struct bench *b)
{
    return matmul(b, KG_TYPE_I8, 1);
}

static int time_launch(struct bench *b, const char *what, launch_fn *launch, double *us)
{
    struct kg_timer *timer = malloc(sizeof *timer);
    struct kg_timing *timing = malloc(sizeof *timing);
    int rc = KG_E_MEMORY, rotation;
    b->doing = what;
    if (timer && timing) {
        rc = kg_timer_start(timer, b->device, b->stream, &kg_timer_cold, 1);
        while (rc == 0 && kg_timer_next(timer, &rotation))
            kg_timer_launched(timer, launch(b));
        int end = kg_timer_finish(timer, timing);
        rc = rc ? rc : end;
    }
    if (rc == 0)
        *us = timing->stats.median;
    free(timer);
    free(timing);
    return rc;
}

/* Values as of real tensors: products of zeros draw less power and run faster. */
static int fill_random(struct bench *b)
{
    size_t n = (size_t)16 << 20;
    uint16_t *block = malloc(n);
    int rc = block ? 0 : KG_E_MEMORY;
    uint32_t x = 0x9e3779b9u;
    for (size_t i = 0; block && i < n / 2; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        /* f16 in +-[2^-4, 2): every exponent of a normal activation; as int8, any byte. */
        block[i] = (uint16_t)((x & 0x83ffu) | ((11 + (x >> 16) % 5) << 10));
    }
    b->doing = "upload";
    for (size_t at = 0; rc == 0 && at < b->bytes; at += n)
        rc = b->device->upload(b->memory + at, block,
                               b->bytes - at < n ? b->bytes - at : n);
    free(block);
    return rc;
}

static int measure_noise(struct bench *b, struct kg_calibration *out)
{
    out->pairs = noise_pairs;
    for (int i = 0; i < noise_pairs; i++) {
        static launch_fn *const launches[] = {launch_copy, launch_empty};
        for (int k = 0; k < 2; k++) {
            double first = 0, second = 0;
            KG_TRY(time_launch(b, "noise", launches[k], &first));
            KG_TRY(time_launch(b, "noise", launches[k], &second));
            out->noise = fmax(out->noise, fabs(first / second - 1));
        }
    }
    return 0;
}

static int measure(struct bench *b, struct kg_calibration *out)
{
    struct kg_ceilings *c = &out->ceilings;
    double us, ops = 2.0 * matrix * matrix * matrix;
    KG_TRY(fill_random(b));
    KG_TRY(time_launch(b, "copy", launch_copy, &us));
    c->copy_gbps = (double)b->bytes / us * 1e-3;
    KG_TRY(time_launch(b, "read sweep", launch_read, &us));
    c->read_gbps = (double)b->bytes / us * 1e-3;
    KG_TRY(time_launch(b, "empty launch", launch_empty, &c->empty_launch_us));
    /* Without the vendor's library the matrix ceilings stay 0, which means unknown. */
    int rc = time_launch(b, "f16 product", launch_f16, &us);
    if (rc == 0)
        c->f16_tflops = ops / us * 1e-6;
    else if (rc != KG_E_UNSUPPORTED)
        return rc;
    rc = time_launch(b, "int8 product", launch_int8, &us);
    if (rc == 0)
        c->int8_tops = ops / us * 1e-6;
    else if (rc != KG_E_UNSUPPORTED)
        return rc;
    return measure_noise(b, out);
}

int kg_calibrate(const struct kg_provider *provider, const struct kg_device_info *device,
                 struct CUstream_st *stream, struct kg_calibration *out,
                 struct kg_error *error)
{
    memset(out, 0, sizeof *out);
    struct bench b = {.device = provider->device,
                      .ops = provider->ceiling,
                      .stream = stream,
                      .doing = "allocation"};
    const char *lacks = provider->size < offsetof(struct kg_provider, norm) || !b.ops ||
                                b.ops->size < sizeof *b.ops || !b.ops->copy ||
                                !b.ops->read_sweep || !b.ops->empty || !b.ops->matmul
                            ? "complete ceiling table"
                        : !b.device->graph_begin ? "graphs"
                                                 : NULL;
    if (lacks)
        return kg_error_set(error, KG_E_UNSUPPORTED,
                            "provider %s cannot measure ceilings: it has no %s",
                            provider->name, lacks);
    b.bytes = (size_t)2 << 30;
    while (b.bytes > device->mem_free / 4)
        b.bytes /= 2;
    void *memory = NULL, *workspace = NULL;
    int rc = b.device->alloc(&memory, b.bytes);
    if (rc == 0)
        rc = b.device->alloc(&workspace, workspace_bytes);
    b.memory = memory;
    b.workspace = workspace;
    if (rc == 0)
        rc = measure(&b, out);
    if (rc != 0)
        kg_error_set(error, rc, "ceilings: %s: %s", b.doing, b.device->last_error());
    if (rc != KG_E_DEVICE) {
        if (memory)
            b.device->release(memory);
        if (workspace)
            b.device->release(workspace);
    }
    return rc;
}

json_t *kg_calibration_json(const struct kg_calibration *k)
{
    const struct kg_ceilings *c = &k->ceilings;
    return json_pack("{s:{s:f, s:f, s:f, s:f, s:f}, s:{s:f, s:i}}", "ceilings",
                     "copy_gbps", c->copy_gbps, "read_gbps", c->read_gbps, "f16_tflops",
                     c->f16_tflops, "int8_tops", c->int8_tops, "empty_launch_us",
                     c->empty_launch_us, "noise_floor", "relative", k->noise, "pairs",
                     k->pairs);
}

int kg_calibration_read(const json_t *json, struct kg_calibration *out)
{
    memset(out, 0, sizeof *out);
    struct kg_ceilings *c = &out->ceilings;
    int rc = json_unpack((json_t *)json, "{s:{s:F, s:F, s:F, s:F, s:F}, s:{s:F, s:i}}",
                         "ceilings", "copy_gbps", &c->copy_gbps, "read_gbps",
                         &c->read_gbps, "f16_tflops", &c->f16_tflops, "int8_tops",
                         &c->int8_tops, "empty_launch_us", &c->empty_launch_us,
                         "noise_floor", "relative", &out->noise, "pairs", &out->pairs);
    return rc == 0 ? 0 : KG_E_FORMAT;
}
