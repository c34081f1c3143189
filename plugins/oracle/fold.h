/*
 * fold.h: a sum with a bound on what f32 makes of it, term by term; not for plugins.
 * running.c has the derivation.
 */
#ifndef KGATE_ORACLE_FOLD_H
#define KGATE_ORACLE_FOLD_H

#include <math.h>

#define KG_FOLD_U 0x1p-24
/* What f64's own roundings may add, for fewer than 2^17 terms: running.c. */
#define KG_FOLD_OWN (1 + 0x1p-12)

enum { KG_FOLD_LANES = 32 };

struct kg_fold {
    double sum, err;
};

/* Adds a term that went through `roundings` roundings before. */
static inline void kg_fold_add(struct kg_fold *f, double term, int roundings)
{
    f->sum += term;
    f->err += roundings * KG_FOLD_U * fabs(term);
    f->err += KG_FOLD_U * (fabs(f->sum) + f->err);
}

static inline void kg_fold_join(struct kg_fold *a, const struct kg_fold *b)
{
    a->sum += b->sum;
    a->err += b->err;
    a->err += KG_FOLD_U * (fabs(a->sum) + a->err);
}

/* The butterfly over n lanes, a power of two; the lanes are used up. */
static inline struct kg_fold kg_fold_lanes(struct kg_fold *lanes, int n)
{
    for (int distance = n / 2; distance > 0; distance /= 2)
        for (int l = 0; l < distance; l++)
            kg_fold_join(&lanes[l], &lanes[l + distance]);
    return lanes[0];
}

#endif
