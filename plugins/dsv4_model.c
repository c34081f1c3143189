#include "plugins/dsv4_cells.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t config(struct kg_cell *cell, const struct kg_artifact *model,
                      const char *key)
{
    int64_t value;

    if (!kg_artifact_i64(model, key, &value) || value < 1 || value > 1 << 20)
        kg_skip(cell, "not-applicable", "config.json of the model has no usable %s", key);
    return value;
}

static const struct kg_tensor *part(struct kg_cell *cell, const char *role,
                                    const char *name, const char *suffix, bool required)
{
    char full[160];

    snprintf(full, sizeof full, "%s.%s", name, suffix);
    if (required)
        return kg_tensor(cell, role, full);
    return kg_artifact_find(kg_artifact(cell, role), full);
}

static bool is_matrix(const struct kg_tensor *t, int64_t cols, int64_t rows,
                      enum kg_type type, enum kg_type other)
{
    return (t->type == type || t->type == other) && t->n_dims == 2 && t->ne[0] == cols &&
           t->ne[1] == rows;
}

static struct kg_dsv4_weights projection(struct kg_cell *cell, const char *role,
                                         const char *name, int64_t n, int64_t k)
{
    const struct kg_tensor *w = part(cell, role, name, "weight", true);
    const struct kg_tensor *ws = part(cell, role, name, "weight_scale", false);
    struct kg_dsv4_weights out = {16, w->data, NULL, 0, n, k};
    bool fits = is_matrix(w, k / 2, n, KG_TYPE_U8, KG_TYPE_I8);

    if (ws) {
        const struct kg_tensor *scale2 = part(cell, role, name, "weight_scale_2", true);
        fits = fits && is_matrix(ws, k / 16, n, KG_TYPE_F8_E4M3, KG_TYPE_U8) &&
               scale2->type == KG_TYPE_F32 && scale2->bytes == 4;
        if (fits)
            memcpy(&out.scale2, scale2->data, 4);
    } else {
        ws = part(cell, role, name, "scale", true);
        out.group = 32;
        fits = fits && is_matrix(ws, k / 32, n, KG_TYPE_F8_E8M0, KG_TYPE_U8);
    }
    if (!fits)
        kg_skip(cell, "not-applicable",
                "%s: a tensor of it is not %" PRId64 " x %" PRId64 " of four-bit weights",
                name, n, k);
    out.ws = ws->data;
    return out;
}

struct kg_dsv4_expert kg_dsv4_expert_of(struct kg_cell *cell, const char *role,
                                        const char *prefix, int expert)
{
    const struct kg_artifact *model = kg_artifact(cell, role);
    int64_t hidden = config(cell, model, "hidden_size");
    int64_t inter = config(cell, model, "moe_intermediate_size");
    struct kg_dsv4_expert e = {.expert = expert};
    struct kg_dsv4_weights *to[3] = {&e.w1, &e.w2, &e.w3};
    double limit = 10;

    if (hidden % 128 != 0 || inter % 128 != 0)
        kg_skip(cell, "not-applicable",
                "sizes %" PRId64 " and %" PRId64 " are not multiples of 128", hidden,
                inter);
    if (!kg_artifact_f64(model, "swiglu_limit", &limit))
        kg_note(cell, "config.json has no swiglu_limit: 10 is taken");
    e.limit = (float)limit;
    snprintf(e.prefix, sizeof e.prefix, "%s", prefix);
    for (int p = 0; p < 3; p++) {
        char name[128];
        snprintf(name, sizeof name, "%s.ffn.experts.%d.w%d", prefix, expert, p + 1);
        *to[p] = projection(cell, role, name, p == 1 ? hidden : inter,
                            p == 1 ? inter : hidden);
    }
    return e;
}

struct kg_dsv4_expert kg_dsv4_sampled(struct kg_cell *cell,
                                      const struct kg_dsv4_sample *sample)
{
    const struct kg_artifact *model = kg_artifact(cell, "model");
    int64_t layers = config(cell, model, "num_hidden_layers");
    int64_t experts = config(cell, model, "n_routed_experts");
    int64_t layer = sample->layer == -1   ? (layers + 1) / 2
                    : sample->layer == -2 ? layers - 1
                                          : sample->layer;
    int64_t expert = sample->expert < experts ? sample->expert : experts - 1;
    char prefix[48];

    layer = layer < layers ? layer : layers - 1;
    if (sample->mtp >= 0)
        snprintf(prefix, sizeof prefix, "mtp.%d", sample->mtp);
    else
        snprintf(prefix, sizeof prefix, "layers.%" PRId64, layer);
    kg_param_s(cell, "block", prefix);
    kg_param_i(cell, "expert", expert);
    return kg_dsv4_expert_of(cell, "model", prefix, (int)expert);
}

/* bf16 or f32 elements at any alignment. */
static void copy_floats(float *to, const struct kg_tensor *t, size_t count)
{
    if (t->type == KG_TYPE_F32) {
        memcpy(to, t->data, count * sizeof *to);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[4] = {0};
        memcpy(bytes + 2, (const uint8_t *)t->data + 2 * i, 2);
        memcpy(&to[i], bytes, 4);
    }
}

const float *kg_dsv4_captured(struct kg_cell *cell, const struct kg_dsv4_expert *expert,
                              const char *role, int64_t *rows)
{
    const char *synthetic = kg_option(cell, "synthetic-activations");
    int64_t hidden = expert->w1.k;
    char name[80];

    if (synthetic && strcmp(synthetic, "true") == 0) {
        kg_param_s(cell, "activations", "synthetic");
        kg_note(cell, "activations are test vectors, not captured rows");
        return kg_pr(cell, (size_t)(*rows * hidden), 61, 1.0f);
    }
    snprintf(name, sizeof name, "moe_x.%s", expert->prefix);
    const struct kg_tensor *x = kg_tensor(cell, role, name);
    if ((x->type != KG_TYPE_F32 && x->type != KG_TYPE_BF16) || x->n_dims != 2 ||
        x->ne[0] != hidden || x->ne[1] < 1)
        kg_skip(cell, "artifact-missing",
                "%s holds %" PRId64 " x %" PRId64 " %s, not rows of %" PRId64
                " F32 or BF16: another model's capture?",
                name, x->ne[1], x->ne[0], kg_type_name(x->type), hidden);
    *rows = x->ne[1] < *rows ? x->ne[1] : *rows;

    size_t count = (size_t)(*rows * hidden);
    float *copy = kg_alloc(cell, count * sizeof *copy);
    copy_floats(copy, x, count);
    kg_param_s(cell, "activations", name);
    return copy;
}
