/*
 * --against: the same cell once more, on the provider to compare with.
 *
 * The cell's function is deterministic and its checks are code of its own, so that only
 * running it again tells whether the other provider passes them. What the second pass finds
 * is one event, `against`, after the cell's own `done`: a fault of the other provider never
 * touches the verdict of the one under test. Outputs are compared byte for byte in the order
 * of their fetches, by elements as the checks read them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runner/cell.h"

#define LISTED_MAX 100 /* differing outputs in an event */
#define UNPAIRED_NAN UINT64_MAX

/* ---- keeping ---- */

void kg_output_keep(struct kg_cell *cell, const char *key, const void *data, size_t bytes)
{
    if (cell->host->other.provider == NULL)
        return;
    size_t length = strlen(key) + 1;
    struct kg_output *output = kg_alloc(cell, sizeof *output);
    char *copy = kg_alloc(cell, length);
    memcpy(copy, key, length);
    *output = (struct kg_output){.key = copy, .data = data, .bytes = bytes};
    *cell->outputs_tail = output;
    cell->outputs_tail = &output->next;
}

void kg_output_mark(struct kg_cell *cell, const void *p, unsigned elem_bytes, bool is_f32)
{
    for (struct kg_output *o = cell->outputs; o != NULL; o = o->next) {
        uintptr_t at = (uintptr_t)p, start = (uintptr_t)o->data;
        if (at < start || at - start >= o->bytes || o->is_f32)
            continue;
        o->elem_bytes = elem_bytes;
        o->is_f32 = is_f32;
    }
}

/* ---- comparing ---- */

/* Differing elements by their distance: bucket 0 is 0 (zeros of two signs, NaNs of two
   kinds), bucket i up to 2^(i-1), the last one a NaN on one side only. */
enum { BUCKETS = 34, NAN_BUCKET = BUCKETS };

struct difference {
    size_t count, differ, worst;
    uint64_t distance; /* of the worst */
    unsigned elem_bytes;
    bool is_f32;
    size_t buckets[BUCKETS + 1];
};

static uint64_t load(const uint8_t *data, unsigned elem_bytes, size_t i)
{
    uint64_t value = 0;
    memcpy(&value, data + i * elem_bytes, elem_bytes);
    return value;
}

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

static int64_t place(uint32_t bits)
{
    int64_t magnitude = bits & 0x7FFFFFFFu;
    return bits >> 31 ? -magnitude : magnitude;
}

/* How many f32 lie between the two, for elements of four bytes; else how far the codes are
   apart. */
static uint64_t distance_of(uint64_t a, uint64_t b, unsigned elem_bytes)
{
    if (elem_bytes != 4)
        return a > b ? a - b : b - a;
    bool a_nan = is_nan((uint32_t)a), b_nan = is_nan((uint32_t)b);
    if (a_nan || b_nan)
        return a_nan && b_nan ? 0 : UNPAIRED_NAN;
    int64_t d = place((uint32_t)a) - place((uint32_t)b);
    return (uint64_t)(d < 0 ? -d : d);
}

static int bucket_of(uint64_t distance)
{
    int bucket = 0;
    if (distance == UNPAIRED_NAN)
        return NAN_BUCKET;
    for (uint64_t limit = 1; distance > 0; limit *= 2) {
        bucket++;
        if (distance <= limit)
            break;
    }
    return bucket;
}

static void compare(const struct kg_output *a, const struct kg_output *b,
                    struct difference *d)
{
    const struct kg_output *known = a->elem_bytes ? a : b;
    memset(d, 0, sizeof *d);
    d->elem_bytes = known->elem_bytes ? known->elem_bytes : a->bytes % 4 == 0 ? 4 : 1;
    if (a->bytes % d->elem_bytes != 0)
        d->elem_bytes = 1;
    d->is_f32 = d->elem_bytes == 4 && (a->is_f32 || b->is_f32);
    d->count = a->bytes / d->elem_bytes;
    if (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0)
        return;
    for (size_t i = 0; i < d->count; i++) {
        uint64_t x = load(a->data, d->elem_bytes, i), y = load(b->data, d->elem_bytes, i);
        if (x == y)
            continue;
        uint64_t distance = distance_of(x, y, d->elem_bytes);
        if (d->differ++ == 0 || distance > d->distance) {
            d->distance = distance;
            d->worst = i;
        }
        if (d->elem_bytes == 4)
            d->buckets[bucket_of(distance)]++;
    }
}

static json_t *value_json(const struct difference *d, const uint8_t *data)
{
    uint64_t bits = load(data, d->elem_bytes, d->worst);
    char text[24];
    float value;
    if (d->is_f32) {
        memcpy(&value, data + 4 * d->worst, sizeof value);
        return kg_event_number((double)value);
    }
    snprintf(text, sizeof text, "0x%0*llx", (int)(2 * d->elem_bytes),
             (unsigned long long)bits);
    return json_string(text);
}

static json_t *difference_json(const struct difference *d, const struct kg_output *a,
                               const struct kg_output *b)
{
    json_t *json =
        json_pack("{s:I, s:I, s:i, s:{s:I, s:o, s:o}}", "count", (json_int_t)d->count,
                  "differ", (json_int_t)d->differ, "elem_bytes", (int)d->elem_bytes,
                  "worst", "index", (json_int_t)d->worst, "new", value_json(d, a->data),
                  "old", value_json(d, b->data));
    if (d->elem_bytes != 4)
        return json;
    json_t *ulp = json_object();
    for (int i = 0; i <= BUCKETS; i++) {
        char key[24];
        snprintf(key, sizeof key, "%llu", i ? 1ull << (i - 1) : 0ull);
        if (d->buckets[i] > 0)
            json_object_set_new(ulp, i == NAN_BUCKET ? "nan" : key,
                                json_integer((json_int_t)d->buckets[i]));
    }
    json_object_set_new(json, "ulp", ulp);
    return json;
}

static void list(json_t *differing, const char *key, json_t *entry)
{
    char name[2 * KG_NAME_MAX + 40];
    snprintf(name, sizeof name, "%s", key);
    for (int n = 2; json_object_get(differing, name) != NULL; n++)
        snprintf(name, sizeof name, "%s #%d", key, n);
    json_object_set_new(differing, name, entry);
}

/* The outputs of both passes, in the order of their fetches, as far as that is the same. */
static json_t *compare_outputs(const struct kg_cell *first, const struct kg_cell *second)
{
    size_t outputs = 0, equal = 0, unmatched = 0;
    json_t *differing = json_object();
    const struct kg_output *a = first->outputs, *b = second->outputs;
    for (; a && b && strcmp(a->key, b->key) == 0 && a->bytes == b->bytes;
         a = a->next, b = b->next) {
        struct difference d;
        compare(a, b, &d);
        outputs++;
        equal += d.differ == 0;
        if (d.differ > 0 && json_object_size(differing) < LISTED_MAX)
            list(differing, a->key, difference_json(&d, a, b));
    }
    for (; a; a = a->next)
        unmatched++;
    for (; b; b = b->next)
        unmatched++;
    return json_pack("{s:I, s:I, s:I, s:o}", "compared", (json_int_t)outputs, "equal",
                     (json_int_t)equal, "unmatched", (json_int_t)unmatched, "differing",
                     differing);
}

/* ---- the second pass ---- */

void kg_against_run(struct kg_host *host, const struct kg_plan_cell *plan,
                    const struct kg_cell *first)
{
    kg_event_write(host->event_fd,
                   json_pack("{s:s, s:s}", "ev", "again", "id", plan->id));
    kg_host_swap(host);
    struct kg_cell *second = kg_cell_pass(host, plan, first);
    kg_host_swap(host);
    json_t *event = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:O, s:o, s:b, s:f}", "ev", "against", "id", plan->id,
        "verdict", kg_verdict_name(second->verdict), "reason",
        second->reason ? second->reason : "", "detail", kg_event_text(second->detail),
        "failed_checks", second->failed_checks, "outputs", compare_outputs(first, second),
        "same_inputs", first->inputs == second->inputs, "seconds", second->seconds);
    if (second->pairs)
        json_object_set(event, "pairs", second->pairs);
    kg_event_write(host->event_fd, event);
    kg_cell_free(second);
}
