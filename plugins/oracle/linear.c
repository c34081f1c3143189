/*
 * y = W x in f64, with the sum of the terms' magnitudes beside it.
 *
 * The work is a blocked matrix product: 4 weight rows by 4 or 12 tokens in registers, K
 * in slices that stay in the caches. The product of two f32 is exact in f64, so fma() and
 * multiply-then-add are the same there and the faster one is taken. The magnitudes are
 * the same product again, of |W| and |x|.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __FMA__
#include <immintrin.h>
#endif

#include "plugins/oracle/oracle.h"

enum {
    ROWS = 4,
    SLICE = 512,
    PANEL = 64
}; /* PANEL: weight rows a thread takes at once */

typedef double vec __attribute__((vector_size(32), may_alias));

/* A macro, because a function that returns a vec has an ABI of its own without AVX. */
#ifdef __FMA__
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_pd(a, _mm256_set1_pd(b), c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

/*
 * sum[row][token] += over k of w[k][row] * x[k][token], for ROWS rows and 4 * VECS tokens.
 * w is packed [k][ROWS], x [k][4 * VECS].
 */
#define DEFINE_TILE(name, VECS)                                                          \
    static void name(const double *w, const double *x, int64_t n, double *sum)           \
    {                                                                                    \
        vec acc[ROWS][VECS];                                                             \
        memcpy(acc, sum, sizeof acc);                                                    \
        for (int64_t k = 0; k < n; k++, w += ROWS, x += 4 * VECS) {                      \
            _Pragma("GCC unroll 4") for (int r = 0; r < ROWS; r++)                       \
                _Pragma("GCC unroll 3") for (int v = 0; v < VECS; v++) acc[r][v] =       \
                    MULTIPLY_ADD(((const vec *)x)[v], w[r], acc[r][v]);                  \
        }                                                                                \
        memcpy(sum, acc, sizeof acc);                                                    \
    }

DEFINE_TILE(tile_4, 1)
DEFINE_TILE(tile_12, 3)

struct job {
    const struct kg_oracle_type *type;
    const uint8_t *w;
    const double *x[2]; /* packed activations and their magnitudes */
    double *y[2];       /* results and sums of magnitudes; y[1] may be NULL */
    int64_t in, out, m;
    int64_t width;  /* tokens per tile: 4 or 12 */
    int64_t groups; /* tiles that cover m */
    size_t row_bytes;
};

/* x [m][in] to [slice][group][k][width], zero beyond m. */
static void pack_x(const struct job *job, const double *x, double *plain, double *abs)
{
    int64_t total = job->groups * job->width;

#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < job->in; k++) {
        int64_t k0 = k / SLICE * SLICE;
        int64_t n = job->in - k0 < SLICE ? job->in - k0 : SLICE;
        for (int64_t t = 0; t < total; t++) {
            double value = t < job->m ? x[t * job->in + k] : 0;
            int64_t at = k0 * total + (t / job->width * n + (k - k0)) * job->width +
                         t % job->width;
            plain[at] = value;
            abs[at] = fabs(value);
        }
    }
}

/* Scratch of one thread. */
struct scratch {
    float row[SLICE];
    double w[2][PANEL][SLICE]; /* [rows / ROWS][k][ROWS] */
};

/* K slice [k0, k0 + n) of the rows from o0 on, dequantized; rows past the end are 0. */
static void pack_w(const struct job *job, struct scratch *scratch, int64_t o0,
                   int64_t rows, int64_t k0, int64_t n)
{
    const struct kg_type_info *info = kg_type_info(job->type->type);
    double *plain = &scratch->w[0][0][0], *abs = &scratch->w[1][0][0];

    for (int64_t r = 0; r < (rows + ROWS - 1) / ROWS * ROWS; r++) {
        if (r < rows)
            kg_oracle_dequantize(job->type,
                                 job->w + (size_t)(o0 + r) * job->row_bytes +
                                     k0 / info->block * info->bytes,
                                 scratch->row, n);
        else
            memset(scratch->row, 0, sizeof scratch->row);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = (r / ROWS * n + k) * ROWS + r % ROWS;
            plain[at] = scratch->row[k];
            abs[at] = fabs(plain[at]);
        }
    }
}

/* Adds one tile's share to y and, if wanted, to the magnitudes. */
static void add_tile(const struct job *job, struct scratch *scratch, int64_t o,
                     int64_t quad, int64_t group, int64_t k0, int64_t n)
{
    int64_t total = job->groups * job->width;
    int64_t rows = job->out - o < ROWS ? job->out - o : ROWS;
    int64_t t0 = group * job->width;
    int64_t tokens = job->m - t0 < job->width ? job->m - t0 : job->width;

    for (int which = 0; which < 2 && job->y[which]; which++) {
        double sum[ROWS * 12] __attribute__((aligned(32))) = {0};
        const double *w = &scratch->w[which][0][0] + quad * n * ROWS;
        const double *x = job->x[which] + k0 * total + group * n * job->width;
        if (job->width == 4)
            tile_4(w, x, n, sum);
        else
            tile_12(w, x, n, sum);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t t = 0; t < tokens; t++)
                job->y[which][(t0 + t) * job->out + o + r] += sum[r * job->width + t];
    }
}

static void run_panel(const struct job *job, struct scratch *scratch, int64_t o0)
{
    int64_t rows = job->out - o0 < PANEL ? job->out - o0 : PANEL;

    for (int64_t k0 = 0; k0 < job->in; k0 += SLICE) {
        int64_t n = job->in - k0 < SLICE ? job->in - k0 : SLICE;
        pack_w(job, scratch, o0, rows, k0, n);
        for (int64_t group = 0; group < job->groups; group++)
            for (int64_t quad = 0; quad * ROWS < rows; quad++)
                add_tile(job, scratch, o0 + quad * ROWS, quad, group, k0, n);
    }
}

static int run_job(const struct job *job)
{
    int rc = KG_OK;

#pragma omp parallel
    {
        struct scratch *scratch = aligned_alloc(64, (sizeof *scratch + 63) / 64 * 64);
        if (!scratch) {
#pragma omp atomic write
            rc = KG_E_MEMORY;
        }
#pragma omp for schedule(dynamic)
        for (int64_t o0 = 0; o0 < job->out; o0 += PANEL)
            if (scratch)
                run_panel(job, scratch, o0);
        free(scratch);
    }
    return rc;
}

int kg_oracle_linear(const struct kg_oracle_type *type, const void *w, const double *x,
                     double *y, double *terms, int64_t in, int64_t out, int64_t m)
{
    int64_t width = m <= 4 ? 4 : 12;
    struct job job = {
        .type = type,
        .w = w,
        .y = {y, terms},
        .in = in,
        .out = out,
        .m = m,
        .width = width,
        .groups = (m + width - 1) / width,
        .row_bytes = kg_row_bytes(type->type, in)
    };
    size_t count = (size_t)(in * job.groups * width);
    double *plain = aligned_alloc(64, (2 * count * sizeof *plain + 63) / 64 * 64);
    int rc;

    if (!plain)
        return KG_E_MEMORY;
    job.x[0] = plain;
    job.x[1] = plain + count;
    pack_x(&job, x, plain, plain + count);
    memset(y, 0, (size_t)(out * m) * sizeof *y);
    if (terms)
        memset(terms, 0, (size_t)(out * m) * sizeof *terms);
    rc = run_job(&job);
    free(plain);
    return rc;
}

int kg_oracle_linear_f32(const struct kg_oracle_type *type, const void *w, const float *x,
                         double *y, double *terms, int64_t in, int64_t out, int64_t m)
{
    size_t count = (size_t)(in * m);
    double *wide = malloc((count ? count : 1) * sizeof *wide);
    int rc;

    if (!wide)
        return KG_E_MEMORY;
    for (size_t i = 0; i < count; i++)
        wide[i] = x[i];
    rc = kg_oracle_linear(type, w, wide, y, terms, in, out, m);
    free(wide);
    return rc;
}
