/*
 * fp8-blk-dequant: E4M3 weights with a scale for each 128 x 128 block, to Q8_0.
 *
 * `cycle` cells have all 256 codes in order and scales of several binades; `random` cells codes
 * in no order, and scales so small that the halves of Q8_0 become subnormal and zero;
 * `special`, scales that are NaN, infinite, or so small that 1 / d is.
 */
#include <math.h>

#include "plugins/mmvq_cells.h"
#include "plugins/oracle/mmvq.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

struct shape {
    int out, in;
};

static const struct shape shapes[] = {
    {256, 512},
    {136, 160},
    {8,   32 },
    {5,   128},
    {6,   160},
    {129, 288},
    {1,   96 },
};

static void check(struct kg_cell *cell, const struct shape *shape, const uint8_t *codes,
                  const float *scales, size_t n_scales)
{
    size_t n = (size_t)(shape->in * shape->out), bytes = n / 32 * 34;
    struct kg_cost cost = {(double)(n + bytes + n_scales * 4), 2 * (double)n, "f32"};
    struct kg_buf *dc = kg_input(cell, "codes", codes, n);
    struct kg_buf *ds = kg_input(cell, "scales", scales, n_scales * sizeof *scales);
    struct kg_buf *dq = kg_output(cell, "q8", bytes);
    uint8_t *want = kg_alloc(cell, bytes);

    kg_param_i(cell, "in", shape->in);
    kg_param_i(cell, "out", shape->out);
    KG_ARM(cell, "q8_0", &cost,
           KG_OPS(cell, fp8, blk_dequant_q8_0)(kg_ptr(dc), kg_ptr(ds), kg_ptr(dq),
                                               shape->in, shape->out, kg_stream(cell)));
    kg_oracle_e4m3_to_q8_0(codes, scales, want, shape->in, shape->out);
    kg_check_exact(cell, "q8", kg_fetch(dq), want, bytes, 1);
}

static size_t n_scales_of(const struct shape *shape)
{
    return (size_t)((shape->out + 127) / 128 * ((shape->in + 127) / 128));
}

static void run_cycle(struct kg_cell *cell, const void *row)
{
    const struct shape *shape = row;
    size_t n = (size_t)(shape->in * shape->out), n_scales = n_scales_of(shape);
    uint8_t *codes = kg_alloc(cell, n);
    float *scales = kg_alloc(cell, n_scales * sizeof *scales);

    for (size_t i = 0; i < n; i++)
        codes[i] = (uint8_t)i;
    for (size_t i = 0; i < n_scales; i++)
        scales[i] = ldexpf(1 + 0.125f * (float)(i % 3), (int)(i % 10) - 4);
    check(cell, shape, codes, scales, n_scales);
}

static void run_random(struct kg_cell *cell, const void *row)
{
    static const float binades[] = {1, 0x1p-20f, 0x1p9f, 0x1p-27f, 3e-3f};
    const struct shape *shape = row;
    size_t n = (size_t)(shape->in * shape->out), n_scales = n_scales_of(shape);
    uint8_t *codes = kg_alloc(cell, n);
    float *scales = kg_alloc(cell, n_scales * sizeof *scales);

    for (size_t i = 0; i < n; i++)
        codes[i] = (uint8_t)((kg_pr_at(cell, i + 7) + 1) * 128);
    for (size_t i = 0; i < n_scales; i++)
        scales[i] = binades[i % COUNT(binades)] * (1.5f + kg_pr_at(cell, i + 977) / 2);
    check(cell, shape, codes, scales, n_scales);
}

static void run_special(struct kg_cell *cell, const void *row)
{
    static const float scales[] = {NAN,        INFINITY, 0x1p-140f, 0,
                                   -0x1p-140f, -1.75f,   -NAN,      0x1p-128f};
    static const struct shape shape = {130, 480};
    size_t n = (size_t)(shape.in * shape.out);
    uint8_t *codes = kg_alloc(cell, n);

    (void)row;
    for (size_t i = 0; i < n; i++)
        codes[i] =
            (uint8_t)(i % 96 < 64 ? i % 251 : i % 251 | 1); /* with and without zeros */
    check(cell, &shape, codes, scales, COUNT(scales));
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        kg_plan_addf(
            p, &(struct kg_cell_spec){NULL, run_cycle, &shapes[i], NULL, KG_CELL_ORDERED},
            "fp8-blk-dequant.cycle.%dx%d", shapes[i].out, shapes[i].in);
        kg_plan_addf(
            p,
            &(struct kg_cell_spec){NULL, run_random, &shapes[i], NULL, KG_CELL_ORDERED},
            "fp8-blk-dequant.random.%dx%d", shapes[i].out, shapes[i].in);
    }
    kg_plan_add(p, &(struct kg_cell_spec){"fp8-blk-dequant.special", run_special, NULL,
                                          NULL, KG_CELL_ORDERED});
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "fp8-blk-dequant",
    .summary = "E4M3 weights with block scales to Q8_0, byte for byte",
    .plan = plan,
};
