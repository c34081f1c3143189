#include "runner/diff/compare.h"

#include <math.h>
#include <string.h>

#include "runner/diff/ranktest.h"

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static const struct kg_record_check *find_check(const struct kg_record_cell *c,
                                                const char *name, size_t guess)
{
    if (guess < c->n_checks && strcmp(c->checks[guess].name, name) == 0)
        return &c->checks[guess];
    for (size_t i = 0; i < c->n_checks; i++)
        if (strcmp(c->checks[i].name, name) == 0)
            return &c->checks[i];
    return NULL;
}

/* How far a margin may wander from run to run, natural log units. An exact check does not
   wander. Where no spread was recorded only the smallest rise worth a line applies. */
static double allowed(const struct kg_record_check *b, const struct kg_record_check *h,
                      double rise)
{
    if (strcmp(h->class_name, "exact") == 0)
        return 0;
    double spread =
        fmax(isnan(b->spread) ? 0 : b->spread, isnan(h->spread) ? 0 : h->spread);
    return fmax(3 * spread, log1p(rise));
}

static void compare_margin(struct kg_diff *diff, const struct kg_diff_options *options,
                           const struct kg_record_cell *base,
                           const struct kg_record_cell *head,
                           const struct kg_record_check *b,
                           const struct kg_record_check *h, unsigned causes)
{
    if (isnan(b->margin) || isnan(h->margin) || b->margin == h->margin || b->margin < 0 ||
        h->margin < 0)
        return;
    double step = log(h->margin) - log(b->margin); /* 0 -> x: infinite, which is right */
    if (!(fabs(step) > allowed(b, h, options->margin_rise)))
        return;
    bool moved = kg_attribute_bound(b, h);
    if (moved)
        causes |= KG_CAUSE_BOUND;
    if (moved && b->value == h->value)
        causes = KG_CAUSE_BOUND | (causes & KG_CAUSE_SECTION);
    else if (kg_attribute_same_output(base, head))
        causes &= ~(unsigned)(KG_CAUSE_KERNEL | KG_CAUSE_DRIVER | KG_CAUSE_DEVICE);
    struct kg_change *c = kg_diff_add(
        diff, step > 0 ? KG_CHANGE_MARGIN_WORSE : KG_CHANGE_MARGIN_BETTER, base, head,
        causes, isfinite(step) ? "margin %.3g -> %.3g (x%.3g)" : "margin %.3g -> %.3g",
        b->margin, h->margin, exp(step));
    c->what = h->name;
    c->base_value = b->margin;
    c->head_value = h->margin;
    /* Twice as near to the bound matters more the nearer it is. */
    c->weight = step > 0 ? h->margin : -step;
}

void kg_compare_checks(struct kg_diff *diff, const struct kg_diff_options *options,
                       const struct kg_record_cell *base,
                       const struct kg_record_cell *head, unsigned causes)
{
    for (size_t i = 0; i < base->n_checks; i++) {
        const struct kg_record_check *b = &base->checks[i];
        if (strcmp(b->class_name, "info") == 0)
            continue;
        const struct kg_record_check *h = find_check(head, b->name, i);
        if (!h || strcmp(h->class_name, "info") == 0) {
            kg_diff_add(diff, KG_CHANGE_COVERAGE_LOST, base, head, causes,
                        h ? "the check only informs now" : "the check is gone")
                ->what = b->name;
            continue;
        }
        if (diff->data_refused)
            continue;
        if (kg_attribute_bound(b, h)) {
            struct kg_change *c = kg_diff_add(
                diff, KG_CHANGE_BOUND, base, head,
                KG_CAUSE_BOUND | (causes & KG_CAUSE_SECTION), "bound %.3g -> %.3g (%s)",
                b->bound, h->bound, h->bound > b->bound ? "looser" : "tighter");
            c->what = h->name;
            c->base_value = b->bound;
            c->head_value = h->bound;
            c->weight = h->bound > b->bound ? h->bound / b->bound : 0;
        }
        compare_margin(diff, options, base, head, b, h, causes);
    }
}

void kg_compare_digests(struct kg_diff *diff, const struct kg_record_cell *base,
                        const struct kg_record_cell *head, unsigned causes)
{
    size_t differ = 0;
    const char *first = NULL;
    for (size_t i = 0; i < base->n_digests; i++) {
        const struct kg_record_digest *b = &base->digests[i], *h = NULL;
        if (i < head->n_digests && strcmp(head->digests[i].key, b->key) == 0)
            h = &head->digests[i];
        for (size_t j = 0; j < head->n_digests && !h; j++)
            if (strcmp(head->digests[j].key, b->key) == 0)
                h = &head->digests[j];
        if (!h) {
            kg_diff_add(diff, KG_CHANGE_COVERAGE_LOST, base, head, causes,
                        "the output is no longer fetched")
                ->what = b->key;
        } else if (strcmp(b->hex, h->hex) != 0) {
            first = first ? first : b->key;
            differ++;
        }
    }
    if (!differ)
        return;
    /* Only an ordered cell promises the same bits on another device. */
    if (causes & KG_CAUSE_DEVICE && !(base->ordered && head->ordered))
        return;
    causes &= ~(unsigned)KG_CAUSE_BOUND;
    struct kg_change *c =
        differ == 1
            ? kg_diff_add(diff, KG_CHANGE_BITS, base, head, causes, "digest differs")
            : kg_diff_add(diff, KG_CHANGE_BITS, base, head, causes,
                          "digest differs, as do %zu more", differ - 1);
    c->what = first;
    /* An ordered cell has the same bits on every device: only its source can change it. */
    c->weight = base->ordered && head->ordered ? 1 : 0;
}

const char *kg_refusal_name(enum kg_refusal refusal)
{
    static const char *const names[KG_N_REFUSALS] = {
        [KG_REFUSE_POLICY] = "another timing policy",
        [KG_REFUSE_SERIES] = "another series",
        [KG_REFUSE_SAMPLES] = "no samples",
        [KG_REFUSE_CLOCKS] = "other clocks",
        [KG_REFUSE_THROTTLED] = "throttled",
        [KG_REFUSE_INVALID] = "invalid",
    };
    return names[refusal];
}

/* Clocks that wander by a little are the same clocks. */
static bool other_clock(double a, double b)
{
    return isnan(a) != isnan(b) || fabs(a - b) > 0.03 * fmax(a, b);
}

/* KG_N_REFUSALS if the times of an arm may be compared. */
static enum kg_refusal refused(const struct kg_record_timing *b,
                               const struct kg_record_timing *h)
{
    if (!same_text(b->policy, h->policy) ||
        !same_text(b->policy_version, h->policy_version))
        return KG_REFUSE_POLICY;
    if (!same_text(b->series, h->series))
        return KG_REFUSE_SERIES;
    if (b->n_samples == 0 || h->n_samples == 0)
        return KG_REFUSE_SAMPLES;
    if (b->invalid || h->invalid)
        return KG_REFUSE_INVALID;
    if (b->throttled || h->throttled)
        return KG_REFUSE_THROTTLED;
    if (other_clock(b->sm_mhz, h->sm_mhz) || other_clock(b->mem_mhz, h->mem_mhz))
        return KG_REFUSE_CLOCKS;
    return KG_N_REFUSALS;
}

static bool same_arm(const struct kg_record_timing *b, const struct kg_record_timing *h)
{
    return strcmp(b->arm, h->arm) == 0;
}

void kg_compare_times(struct kg_diff *diff, const struct kg_diff_options *options,
                      const struct kg_record_cell *base,
                      const struct kg_record_cell *head, unsigned causes, double floor)
{
    for (size_t i = 0; i < base->n_timings; i++) {
        const struct kg_record_timing *b = &base->timings[i], *h = NULL;
        for (size_t j = 0; j < head->n_timings && !h; j++)
            if (same_arm(b, &head->timings[j]))
                h = &head->timings[j];
        if (!h)
            continue;
        enum kg_refusal why = refused(b, h);
        if (why != KG_N_REFUSALS) {
            diff->n_times_refused[why]++;
            continue;
        }
        struct kg_rank rank;
        kg_rank_test(b->samples_us, b->n_samples, h->samples_us, h->n_samples, &rank);
        diff->n_timed++;
        if (!(rank.p < options->alpha) || !(fabs(log(rank.ratio)) > log1p(floor)))
            continue;
        struct kg_change *c = kg_diff_add(
            diff, rank.ratio > 1 ? KG_CHANGE_SLOWER : KG_CHANGE_FASTER, base, head,
            causes & ~(unsigned)KG_CAUSE_BOUND,
            "%.4g -> %.4g us (x%.3f, p %.2g, delta %+.2f, n %zu/%zu)", b->median_us,
            h->median_us, rank.ratio, rank.p, rank.delta, b->n_samples, h->n_samples);
        c->what = h->arm;
        c->base_value = b->median_us;
        c->head_value = h->median_us;
        c->p = rank.p;
        c->effect = rank.delta;
        c->weight = fabs(log(rank.ratio));
    }
}
