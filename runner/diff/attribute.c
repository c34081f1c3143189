#include "runner/diff/attribute.h"

#include <math.h>
#include <string.h>

void kg_attribute_init(struct kg_attribution *a, struct kg_record *base,
                       struct kg_record *head)
{
    memset(a, 0, sizeof *a);
    for (enum kg_fact f = 0; f < KG_N_FACTS; f++)
        if (kg_fact_cause(f) && kg_fact_differs(base, head, f))
            a->run |= kg_fact_cause(f);
    /* The selection explains what is missing, which classify.c sees in the cells; the
       same goes for stand-in artifacts, which are compared section by section. */
    a->run &= ~(unsigned)(KG_CAUSE_SELECTION | KG_CAUSE_ARTIFACT);
}

/* What makes two artifacts the same one: not where they were found. */
static bool same_artifact(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"id",    "found",  "sha256",   "digest",
                                       "bytes", "format", "synthetic"};
    if (!json_is_object(a) || !json_is_object(b))
        return json_equal((json_t *)a, (json_t *)b);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (x != y && !(x && y && json_equal(x, y)))
            return false;
    }
    return true;
}

bool kg_attribute_artifacts(const struct kg_record_section *b,
                            const struct kg_record_section *h, const char *role)
{
    bool differ = false;
    if (!b->artifacts || !h->artifacts)
        return b->artifacts != h->artifacts;
    if (b->artifacts_size == h->artifacts_size &&
        memcmp(b->artifacts, h->artifacts, b->artifacts_size) == 0)
        return false;
    json_t *x = json_loadb(b->artifacts, b->artifacts_size, JSON_DECODE_ANY, NULL);
    json_t *y = json_loadb(h->artifacts, h->artifacts_size, JSON_DECODE_ANY, NULL);
    if (role) {
        differ = !same_artifact(json_object_get(x, role), json_object_get(y, role));
    } else {
        const char *key;
        json_t *value;
        differ = json_object_size(x) != json_object_size(y);
        json_object_foreach(x, key, value) differ |=
            !same_artifact(value, json_object_get(y, key));
    }
    json_decref(x);
    json_decref(y);
    return differ;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static unsigned section_causes(struct kg_record *base, struct kg_record *head,
                               const char *name, const char *role)
{
    const struct kg_record_section *b = kg_record_section_find(base, name);
    const struct kg_record_section *h = kg_record_section_find(head, name);
    unsigned causes = 0;
    if (!b || !h)
        return 0;
    if (!same_text(b->digest, h->digest))
        causes |= KG_CAUSE_SECTION;
    if (kg_attribute_artifacts(b, h, role))
        causes |= KG_CAUSE_ARTIFACT;
    return causes;
}

unsigned kg_attribute_cell(struct kg_attribution *a, struct kg_record *base,
                           struct kg_record *head, const struct kg_record_cell *b,
                           const struct kg_record_cell *h)
{
    const struct kg_record_cell *cell = h ? h : b;
    /* Cells of one section follow each other, so the last answer mostly serves. */
    if (!a->base_section || strcmp(a->base_section, cell->section) != 0 ||
        !same_text(a->role, cell->role)) {
        a->base_section = cell->section;
        a->role = cell->role;
        a->section = section_causes(base, head, cell->section, cell->role);
    }
    unsigned causes = a->run | a->section;
    if (b && h && b->params && h->params && h->verdict != KG_SKIP &&
        b->verdict != KG_SKIP &&
        (b->params_size != h->params_size ||
         memcmp(b->params, h->params, b->params_size) != 0))
        causes |= KG_CAUSE_PARAMS;
    return causes;
}

bool kg_attribute_bound(const struct kg_record_check *b, const struct kg_record_check *h)
{
    if (!isfinite(b->bound) || !isfinite(h->bound) || b->bound == h->bound)
        return false;
    return strcmp(h->class_name, "bound") != 0 || b->worst_index == h->worst_index ||
           (isnan(b->worst_index) && isnan(h->worst_index));
}

bool kg_attribute_same_output(const struct kg_record_cell *b,
                              const struct kg_record_cell *h)
{
    if (b->n_digests == 0 || b->n_digests != h->n_digests)
        return false;
    for (size_t i = 0; i < b->n_digests; i++)
        if (strcmp(b->digests[i].key, h->digests[i].key) != 0 ||
            strcmp(b->digests[i].hex, h->digests[i].hex) != 0)
            return false;
    return true;
}
