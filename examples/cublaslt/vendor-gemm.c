/*
 * vendor-gemm: c[m][n] = a[m][k] * b[n][k]^T in f16, bf16 and int8, of any provider that has
 * ceiling.matmul. int8 sums are exact. f16 and bf16 products are exact in f32; their k sums are
 * taken in any order, each addition off by at most 2^-23 of the sum of |terms| (tensor cores
 * truncate), and the result is rounded to the type once.
 */
#include <math.h>
#include <string.h>

#include <kgate/check.h>

struct row {
    const char *id;
    int type;
    int64_t m, n, k;
};
static const struct row rows[] = {
    {"vendor-gemm.f16.64x128x256",   KG_TYPE_F16,  64,  128,  256 },
    {"vendor-gemm.f16.512x384x1024", KG_TYPE_F16,  512, 384,  1024},
    {"vendor-gemm.f16.1x2048x4096",  KG_TYPE_F16,  1,   2048, 4096},
    {"vendor-gemm.bf16.64x128x256",  KG_TYPE_BF16, 64,  128,  256 },
    {"vendor-gemm.bf16.17x96x2048",  KG_TYPE_BF16, 17,  96,   2048},
    {"vendor-gemm.i8.64x128x256",    KG_TYPE_I8,   64,  128,  256 },
    {"vendor-gemm.i8.32x256x4096",   KG_TYPE_I8,   32,  256,  4096},
};
enum { WORKSPACE = 32 << 20 };

/* A value that the type holds exactly, and its code: seven bits of significand at most. */
static double make(const struct kg_cell *c, int type, uint64_t i, void *code)
{
    int v = (int)(kg_pr_at(c, i) * 127.0f);
    if (type == KG_TYPE_I8) {
        *(int8_t *)code = (int8_t)v;
        return v;
    }
    float f = (float)v / 128.0f;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    /* f16: rebias the exponent; 1/128 is normal there */
    uint32_t rebiased = ((bits >> 13) - (112u << 10)) & 0x7FFF;
    uint16_t half = v == 0 ? 0 : (uint16_t)((bits >> 16 & 0x8000) | rebiased);
    uint16_t brain = (uint16_t)(bits >> 16);
    memcpy(code, type == KG_TYPE_F16 ? &half : &brain, 2);
    return f;
}

static float value(int type, const void *c, size_t i)
{
    uint16_t h;
    if (type == KG_TYPE_I8)
        return 0; /* compared as integers */
    memcpy(&h, (const char *)c + 2 * i, 2);
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    if (type == KG_TYPE_BF16)
        return f;
    int e = h >> 10 & 31, mantissa = h & 1023;
    f = e == 31 ? NAN
        : e     ? ldexpf((float)(1024 + mantissa), e - 25)
                : ldexpf((float)mantissa, -24);
    return h >> 15 ? -f : f;
}

static void run(struct kg_cell *c, const void *row_)
{
    const struct row *r = row_;
    int is_int = r->type == KG_TYPE_I8;
    size_t in = is_int ? 1 : 2, na = (size_t)(r->m * r->k), nb = (size_t)(r->n * r->k),
           nc = (size_t)(r->m * r->n);
    char *a = kg_alloc(c, na * in), *b = kg_alloc(c, nb * in);
    double *fa = kg_alloc(c, na * sizeof *fa), *fb = kg_alloc(c, nb * sizeof *fb);
    for (size_t i = 0; i < na; i++)
        fa[i] = make(c, r->type, i, a + i * in);
    for (size_t i = 0; i < nb; i++)
        fb[i] = make(c, r->type, i + 77777, b + i * in);
    struct kg_buf *da = kg_input(c, "a", a, na * in), *db = kg_input(c, "b", b, nb * in);
    struct kg_buf *dc = kg_output(c, "c", nc * (is_int ? 4 : 2));
    struct kg_buf *dw = kg_scratch(c, "workspace", WORKSPACE);
    struct kg_cost cost = {(double)((na + nb) * in + nc * (is_int ? 4 : 2)),
                           2.0 * (double)r->m * (double)r->n * (double)r->k,
                           is_int ? "int8-mma" : "f16-mma"};
    KG_ARM(c, "matmul", &cost,
           KG_OPS(c, ceiling, matmul)(r->type, kg_ptr(da), kg_ptr(db), kg_ptr(dc), r->m,
                                      r->n, r->k, kg_ptr(dw), WORKSPACE, kg_stream(c)));
    const void *got = kg_fetch(dc);
    int32_t *exact = kg_alloc(c, nc * sizeof *exact);
    float *y = kg_alloc(c, nc * sizeof *y);
    double *want = kg_alloc(c, nc * sizeof *want),
           *bound = kg_alloc(c, nc * sizeof *bound);
    double unit = r->type == KG_TYPE_F16 ? 0x1p-11 : 0x1p-8;
    for (size_t i = 0; i < nc; i++) {
        const double *ra = fa + i / (size_t)r->n * (size_t)r->k;
        const double *rb = fb + i % (size_t)r->n * (size_t)r->k;
        double sum = 0, magnitude = 0;
        for (int64_t t = 0; t < r->k; t++) {
            sum += ra[t] * rb[t];
            magnitude += fabs(ra[t] * rb[t]);
        }
        double off = (double)r->k * 0x1p-23 * magnitude;
        want[i] = sum;
        exact[i] = (int32_t)sum;
        bound[i] = off + unit * (fabs(sum) + off) + 0x1p-25;
        y[i] = value(r->type, got, i);
    }
    if (is_int)
        kg_check_exact(c, "c", got, exact, nc, 4);
    else
        kg_check_bound(c, "c", y, want, bound, nc);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_add(p, &(struct kg_cell_spec){rows[i].id, run, &rows[i], NULL, 0});
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "vendor-gemm",
    .summary = "f16, bf16 and int8 GEMM of the vendor's library",
    .plan = plan,
};
