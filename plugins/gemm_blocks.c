/*
 * The products of blocks with halves. What the kernel does is in the headers
 * kernels/gemm/blocks_f16*.h: it makes halves of a power of two times each weight, adds the
 * products of a row's even slabs (256 weights) in a chain of mma, those of the odd ones in a
 * second, adds the two and divides by the power.
 */
#include "plugins/gemm_blocks.h"

#include <math.h>

#include "plugins/oracle/grouped.h"

enum { SLAB = 256, UNIT = 32 };

struct form {
    enum kg_type type;
    double power;
    bool quarters; /* of 64 elements first 0..3 of each 16 are added, then 4..7, ... */
};

static const struct form forms[] = {
    {KG_TYPE_NVFP4, 0x1p-7, true },
    {KG_TYPE_Q4_K,  16,     false},
};

static const struct form *form_of(const struct kg_gemm *g)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (forms[i].type == g->w.type->type)
            return &forms[i];
    return NULL;
}

bool kg_gemm_has_blocks_f16(const struct kg_gemm *g)
{
    return form_of(g) != NULL;
}

const float *kg_gemm_blocks_f16(struct kg_gemm *g, struct kg_buf *dh)
{
    struct kg_cell *cell = g->cell;
    struct kg_cost cost = kg_gemm_cost(g, 2, "f16-mma");
    struct kg_buf *dy =
        kg_output(cell, "y-f16-blocks", (size_t)(g->w.out * g->m) * sizeof(float));

    KG_ARM(cell, "f16-blocks", &cost,
           KG_OPS(cell, gemm, f16_blocks)(g->w.type->type, kg_ptr(g->dw), kg_ptr(dh),
                                          kg_ptr(dy), g->w.in, g->w.out, g->m,
                                          kg_stream(cell)));
    return kg_fetch(dy);
}

/* The half that the kernel has for 16 times an element of Q4_K, of unit `unit`. */
static uint16_t q4_k_half(int unit, double scale, double min, int code)
{
    double s = unit % 2 ? 16 * kg_oracle_from_half(kg_oracle_to_half(scale))
                        : kg_oracle_from_half(kg_oracle_to_half(16 * scale));

    return kg_oracle_to_half(s * code - kg_oracle_from_half(kg_oracle_to_half(16 * min)));
}

/*
 * The halves of all weights, [out][in], and a check of them. NVFP4: exact. Q4_K: scale and
 * minimum are off by 2^-11 of themselves, so is the difference of the products, and
 * below the normal halves each is off by 2^-25: for the scale that counts up to 15 times and,
 * in odd units, 16 times that. Sixteen halves of this are less than 2^-21 of the weight.
 */
static uint16_t *make_halves(struct kg_gemm *g, const struct form *form)
{
    const double u = 0x1p-11;
    int block = kg_type_info(form->type)->block;
    size_t n = (size_t)(g->w.in * g->w.out);
    uint16_t *halves = kg_alloc(g->cell, n * sizeof *halves);
    float *got = kg_alloc(g->cell, n * sizeof *got);
    double *want = kg_alloc(g->cell, n * sizeof *want);
    double *bound = kg_alloc(g->cell, n * sizeof *bound);

    for (size_t at = 0; at < n; at += (size_t)block) {
        struct kg_oracle_split part;
        g->w.type->split((const uint8_t *)g->w.data +
                             at / (size_t)block * kg_row_bytes(form->type, block),
                         &part);
        for (int i = 0; i < block; i++) {
            double product = part.scale[i / 16] * part.code[i], min = part.min[i / 16];
            want[at + i] = product - min;
            if (form->type == KG_TYPE_Q4_K) {
                halves[at + i] =
                    q4_k_half(i / UNIT, part.scale[i / 16], min, part.code[i]);
                bound[at + i] = u * (1 + u) * (fabs(product) + fabs(min)) +
                                u * fabs(want[at + i]) + 0x1p-21 * (1 + u);
            } else {
                halves[at + i] = kg_oracle_to_half(form->power * want[at + i]);
                bound[at + i] = 0;
            }
            got[at + i] = (float)(kg_oracle_from_half(halves[at + i]) / form->power);
        }
    }
    kg_check_bound(g->cell, "f16-blocks.halves", got, want, bound, n);
    return halves;
}

/* The even or odd slabs of rows of halves, in the order of the additions; how many elements of
   a row in *n. */
static const uint16_t *slabs(struct kg_cell *cell, const struct form *form,
                             const uint16_t *from, int64_t rows, int64_t in, int odd,
                             int64_t *n)
{
    uint16_t *to = kg_alloc(cell, (size_t)(rows * in) * sizeof *to), *p = to;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < in; k++) {
            int64_t at = k;
            if (form->quarters)
                at = k / 64 * 64 + k % 16 / 4 * 16 + k % 64 / 16 * 4 + k % 4;
            if (k / SLAB % 2 == odd)
                *p++ = from[r * in + at];
        }
    *n = (p - to) / rows;
    return to;
}

/* Adds a chain of mma, as the grouped products have, hence its bound (oracle/grouped.h); and
   one addition. */
static void add_chain(struct kg_gemm *g, const struct form *form, const uint16_t *w,
                      const uint16_t *h, int odd, double *want, double *bound)
{
    const int32_t offsets[] = {0, (int32_t)g->m};
    size_t n = (size_t)(g->w.out * g->m);
    double *y = kg_alloc(g->cell, n * sizeof *y);
    double *err = kg_alloc(g->cell, n * sizeof *err);
    int64_t in;
    const uint16_t *part = slabs(g->cell, form, w, g->w.out, g->w.in, odd, &in);

    if (in == 0)
        return;
    kg_oracle_grouped_all(&(struct kg_oracle_grouped){.groups = 1,
                                                      .in = in,
                                                      .out = g->w.out,
                                                      .offsets = offsets,
                                                      .w = part,
                                                      .x = slabs(g->cell, form, h, g->m,
                                                                 g->w.in, odd, &in)},
                          y, err);
    for (size_t i = 0; i < n; i++) {
        want[i] += y[i];
        bound[i] += err[i];
        bound[i] += 0x1p-24 * (fabs(want[i]) + bound[i]);
    }
}

void kg_gemm_check_blocks_f16(struct kg_gemm *g, const float *y, const uint16_t *h)
{
    const struct form *form = form_of(g);
    size_t n = (size_t)(g->w.out * g->m);
    double *want = kg_alloc(g->cell, n * sizeof *want);
    double *bound = kg_alloc(g->cell, n * sizeof *bound);
    const uint16_t *w = make_halves(g, form);

    for (int odd = 0; odd < 2; odd++)
        add_chain(g, form, w, h, odd, want, bound);
    for (size_t i = 0; i < n; i++) {
        want[i] /= form->power;
        bound[i] /= form->power;
    }
    kg_check_bound(g->cell, "f16-blocks.bound", y, want, bound, n);
}
