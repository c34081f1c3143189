#include "runner/diff/spread.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runner/diff/facts.h"
#include "runner/escape.h"
#include "runner/lookup.h"

/* Sums over runs of the logarithm of one check's margin, less that of base: the numbers
   stay small, so that nothing is lost in the squares. */
struct sums {
    double n, sum, squares;
};

static bool same_build(struct kg_record *a, struct kg_record *b)
{
    static const enum kg_fact same[] = {KG_FACT_PROVIDER_DIGEST, KG_FACT_MANIFEST_DIGEST,
                                        KG_FACT_SEED, KG_FACT_DEVICE, KG_FACT_DRIVER};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (kg_fact_differs(a, b, same[i]))
            return false;
    return kg_fact(a, KG_FACT_PROVIDER_DIGEST) != NULL;
}

static bool same_plugin(const struct kg_record *a, const struct kg_record *b,
                        const char *section)
{
    const struct kg_record_section *x = kg_record_section_find(a, section);
    const struct kg_record_section *y = kg_record_section_find(b, section);
    return x && y && x->digest && y->digest && strcmp(x->digest, y->digest) == 0;
}

static void add_run(struct kg_record *base, const struct kg_record *run,
                    struct sums *sums)
{
    for (size_t i = 0; i < base->n_cells; i++) {
        const struct kg_record_cell *b = &base->cells[i];
        struct sums *s = sums;
        sums += b->n_checks;
        const struct kg_record_cell *r = kg_record_find(run, b->id);
        if (!r || r->n_checks != b->n_checks || !same_plugin(base, run, b->section))
            continue;
        for (size_t k = 0; k < b->n_checks; k++) {
            double step = log(r->checks[k].margin / b->checks[k].margin);
            if (!isfinite(step) || strcmp(r->checks[k].name, b->checks[k].name) != 0)
                continue;
            s[k].n += 1;
            s[k].sum += step;
            s[k].squares += step * step;
        }
    }
}

static void set_spread(struct kg_record *base, const struct sums *s)
{
    for (size_t i = 0; i < base->n_cells; i++)
        for (size_t k = 0; k < base->cells[i].n_checks; k++, s++) {
            struct kg_record_check *c = &base->cells[i].checks[k];
            double n = s->n + 1; /* base itself, whose step is 0 */
            double variance = (s->squares - s->sum * s->sum / n) / (n - 1);
            if (s->n > 0 && variance > 0)
                c->spread = fmax(isnan(c->spread) ? 0 : c->spread, sqrt(variance));
        }
}

int kg_spread_measure(struct kg_record *base, const char *results_dir, size_t most,
                      size_t *used, struct kg_error *error)
{
    struct kg_run_list list;
    size_t n_checks = 0;
    *used = 0;
    KG_TRY(kg_runs_list(results_dir, &list, error));
    for (size_t i = 0; i < base->n_cells; i++)
        n_checks += base->cells[i].n_checks;
    struct sums *sums = kg_xcalloc(n_checks, sizeof *sums);
    char *own = realpath(base->path, NULL);
    for (size_t i = 0; i < list.n && *used < most; i++) {
        struct kg_record run;
        struct kg_error ignored;
        kg_error_init(&ignored);
        char *path = realpath(list.runs[i].path, NULL);
        bool is_base = own && path && strcmp(own, path) == 0;
        free(path);
        if (is_base)
            continue;
        if (kg_record_load(&run, list.runs[i].path, &ignored) == KG_OK &&
            same_build(base, &run)) {
            add_run(base, &run, sums);
            ++*used;
        }
        kg_record_clear(&run);
    }
    if (*used)
        set_spread(base, sums);
    free(own);
    free(sums);
    kg_runs_clear(&list);
    return KG_OK;
}
