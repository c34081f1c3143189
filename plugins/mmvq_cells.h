/*
 * mmvq_cells.h: what the sections about the products of decoding have in common.
 */
#ifndef KGATE_MMVQ_CELLS_H
#define KGATE_MMVQ_CELLS_H

#include "plugins/matvec_cells.h"

/* One tensor of a launch, on the host. */
struct kg_mv_tensor {
    const struct kg_oracle_type *type; /* NULL: F8_E4M3 */
    const void *data;
    int64_t in, out;
    float scale;         /* of the whole tensor */
    const float *scales; /* F8_E4M3: of rows or blocks, by the product's scale_kind */
};

/* A product under test: tensors of one type, and m rows of activations with their codes. */
struct kg_mv {
    struct kg_cell *cell;
    struct kg_mv_tensor w[KG_MMVQ_TENSORS];
    int n, type, scale_kind;
    int64_t in, m;
    const float *x; /* [m][in] */
    struct kg_q8_1 act;
    struct kg_buf *dw[KG_MMVQ_TENSORS], *dscales[KG_MMVQ_TENSORS];
    struct kg_buf *dplanes[KG_MMVQ_TENSORS]; /* NULL until the layout is used */
    struct kg_buf *dq, *dd, *ds;             /* ds: NULL where the type has no minimum */
    /* f64 products of the codes, scale included, and their bounds; NULL until a check needs
       them */
    double *want[KG_MMVQ_TENSORS], *bound[KG_MMVQ_TENSORS];
};

/* Which of the tensors and rows of q a launch takes, and in which form. Zeros mean: all that
   there are, width 1, blocks as in the file. */
struct kg_mv_form {
    int layout, width;
    int first, n;
    int64_t row, m;
};

struct kg_mv_y {
    const float *y[KG_MMVQ_TENSORS]; /* [m][out], numbered as the product's tensors */
};

/* Quantizes x (checks "q", "d", "s") and uploads everything. in and out of the cell's
   parameters are the first tensor's. */
struct kg_mv kg_mv_open(struct kg_cell *cell, const struct kg_mv_tensor *w, int n,
                        int scale_kind, int64_t m, const float *x);

/* Runs it as arm `arm`, into new buffers. */
struct kg_mv_y kg_mv_run(struct kg_mv *mv, const char *arm, struct kg_mv_form form);

/* matvec's stage_b on tensor i, as arm "dp4a". */
const float *kg_mv_dp4a(struct kg_mv *mv, int i);

/* Tensor i in KG_LAYOUT_SPLIT, rearranged on the host. */
struct kg_buf *kg_mv_planes(struct kg_mv *mv, int i);

/* What launches of tensors first .. first+n-1 with m rows of q move and compute. */
struct kg_cost kg_mv_cost(const struct kg_mv *mv, int first, int n, int64_t m);

/* Sees to want[i] and bound[i]. */
void kg_mv_need_want(struct kg_mv *mv, int i);

/* y of tensor i and all m rows against the f64 product of the codes, added in the common
   order. */
void kg_mv_check_bound(struct kg_mv *mv, const char *name, int i, const float *y);

/* The same for k in two parts, the first of so many units of 32 (a multiple of 32); 0: in
   one. */
void kg_mv_check_bound_cut(struct kg_mv *mv, const char *name, int i, const float *y,
                           int64_t first_units);

/* n rows of results of tensor i that may not differ by a bit. */
void kg_mv_check_same(struct kg_mv *mv, const char *name, int i, const float *y,
                      const float *other, int64_t n);

/* max |y - other| / max |other| <= limit, over all m rows of tensor i. */
void kg_mv_check_near(struct kg_mv *mv, const char *name, int i, const float *y,
                      const float *other, double limit);

/* ---- where weights come from ---- */

extern const enum kg_type kg_mv_types[]; /* all but F8_E4M3 */
extern const size_t kg_mv_n_types;

/* "q4_k", "e4m3" */
const char *kg_mv_type_id(int type);
/* Whether the family has the type, and has it in KG_LAYOUT_SPLIT. */
bool kg_mv_has(int type);
bool kg_mv_splits(int type);

/* Made up, scale 1: distinct powers of two as scales of rows and blocks. A type's tensors in
   one launch should differ: `index` selects one. F8_E4M3: every legal code, scales by kind. */
struct kg_mv_tensor kg_mv_made(struct kg_cell *cell, int type, int scale_kind, int64_t in,
                               int64_t out, int index);

/* The tensor of a model; on the emulated device its last rows. Does not return if it is
   missing (SKIP tensor-missing) or no matrix of a type of this family (not-applicable). */
struct kg_mv_tensor kg_mv_tensor(struct kg_cell *cell, const char *role,
                                 const char *name);

/* The first matrix of `type` in the file, in % in_multiple == 0, in >= in_min and at least
   out_min rows; number `skip` of those. NULL if there is none. */
const struct kg_tensor *kg_mv_find(const struct kg_artifact *artifact, int type,
                                   int64_t in_multiple, int64_t in_min, int64_t out_min,
                                   int skip);

/* The width of 1, 2, 4, 8, 16 that m rows of q need. */
int kg_mv_tier(int64_t m);

/* More than 2^20 weights and m > 1: the emulated device gets it only with the section's
   parameter `shapes: all`; else kg_mv_skip_large does not return (SKIP device-unsupported). */
bool kg_mv_is_large(int64_t in, int64_t out, int64_t m);
void kg_mv_skip_large(struct kg_cell *cell, int64_t in, int64_t out, int64_t m);

/* ---- checks that several sections make ---- */

/* Width 1 against stage_b ("dp4a", 1e-3, and "dp4a.bits"), and both against the f64
   product ("bound", "dp4a.bound"). */
void kg_mv_single(struct kg_cell *cell, const struct kg_mv_tensor *w, int64_t m,
                  uint64_t offset);

/* `width` rows of q at a time, in `layout`, against width 1 in the file's ("near", 1e-3, and
   "bits"), and both against the f64 product ("bound", "one.bound"). */
void kg_mv_batched(struct kg_cell *cell, const struct kg_mv_tensor *w, int scale_kind,
                   int layout, int64_t m, int width, uint64_t offset);

/* The law across batch: row r of a batch of m has the bits of the row alone, for every
   m of 1 .. 8, with the width m, and with the next of 2, 4, 8; and for a batch of two groups, the
   second not full. */
void kg_mv_law(struct kg_cell *cell, const struct kg_mv_tensor *w, int scale_kind,
               int layout);

/* All n tensors in one launch against each alone ("bits", "bound", by tensor), at width 1
   if m is 1, else at the widths m and kg_mv_tier(m). */
void kg_mv_fused(struct kg_cell *cell, const struct kg_mv_tensor *w, int n,
                 int scale_kind, int layout, int64_t m, uint64_t offset);

/* ---- KG_LAYOUT_SPLIT ---- */

/* split gives the planes that the host makes ("planes"), unsplit of those the file's bytes
   ("round-trip"). */
void kg_mv_rearrange(struct kg_cell *cell, const struct kg_mv_tensor *w);

/* stage_a_split against stage_a ("bits") and the f64 product of x ("bound"). */
void kg_mv_stage_a_split(struct kg_cell *cell, const struct kg_mv_tensor *w, int64_t m,
                         uint64_t offset);

/* stage_b_split against stage_b ("bits") and the f64 product of the codes ("bound"). */
void kg_mv_stage_b_split(struct kg_cell *cell, const struct kg_mv_tensor *w, int64_t m,
                         uint64_t offset);

/* k in two parts: against the product in one (1e-6 of the largest), against itself at widths
   1 and `width` and once more ("width1.bits", "again.bits"), the sum of the products of
   either part ("parts.bits"), and the f64 product ("bound"). */
void kg_mv_ksplit(struct kg_cell *cell, const struct kg_mv_tensor *w, int64_t m,
                  int width, uint64_t offset);

#endif
