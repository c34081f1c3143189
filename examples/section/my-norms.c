/* my-norms: RMS norm of rows, f32. A gate section out of tree, whole. */
#include <math.h>

#include <kgate/check.h>

struct row {
    const char *id;
    int64_t rows, cols;
};
static const struct row rows[] = {
    {"my-norms.4x320",  4, 320 },
    {"my-norms.1x4097", 1, 4097}, /* not a multiple of anything that a kernel likes */
};
#ifdef PLANT_FAULT
#define EPS_OF_KERNEL 1e-2f /* as if the kernel had a wrong constant: must FAIL */
#else
#define EPS_OF_KERNEL 1e-6f
#endif

static void run(struct kg_cell *c, const void *row_)
{
    const struct row *r = row_;
    size_t n = (size_t)(r->rows * r->cols), cols = (size_t)r->cols;
    const float *x = kg_pr(c, n, 7, 2.0f), *w = kg_pr(c, cols, 11, 1.0f);
    struct kg_buf *dx = kg_input(c, "x", x, n * sizeof *x);
    struct kg_buf *dw = kg_input(c, "w", w, cols * sizeof *w);
    struct kg_buf *dy = kg_output(c, "y", n * sizeof *x);
    double *want = kg_alloc(c, n * sizeof *want), *bound = kg_alloc(c, n * sizeof *bound);

    KG_ARM(c, "base", NULL,
           KG_OPS(c, norm, rms_norm)(kg_ptr(dx), kg_ptr(dw), kg_ptr(dy), r->rows, r->cols,
                                     EPS_OF_KERNEL, kg_stream(c)));
    for (size_t i = 0; i < n; i++) {
        const float *row = x + i / cols * cols;
        double sum = 0;
        for (size_t k = 0; k < cols; k++)
            sum += (double)row[k] * row[k];
        want[i] = x[i] * w[i % cols] / sqrt(sum / (double)cols + 1e-6f);
        /* cols additions of positive terms, halved by the root, and six roundings */
        bound[i] = (0.5 * (double)(cols + 1) + 6) * 0x1p-24 * fabs(want[i]);
    }
    kg_check_bound(c, "y", kg_fetch(dy), want, bound, n);
}

static void plan(struct kg_plan *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        kg_plan_add(p, &(struct kg_cell_spec){rows[i].id, run, &rows[i], NULL, 0});
}

const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = "my-norms",
    .summary = "RMS norm of rows, f32",
    .plan = plan,
};
