/*
 * runner/models_impl.h: models.yaml in memory, shared by its reader and the search.
 */
#ifndef KG_RUNNER_MODELS_IMPL_H
#define KG_RUNNER_MODELS_IMPL_H

#include "runner/arena.h"
#include "runner/models.h"
#include "runner/yaml.h"

struct model {
    const char *id;
    const char *name; /* one component: of a file, or of a directory */
    bool is_directory;
    const char *format;
    size_t n_legacy;
    const char **legacy;
    const char *sha256; /* lower case, or NULL */
    const char *fallback_id;
    const struct model *fallback; /* never leads back here */
    bool reduced, synthetic;
};

struct kg_models {
    struct kg_arena arena;
    struct kg_yaml *yaml;
    char *folder; /* absolute: where models.yaml is; malloc'ed */
    size_t n_search;
    const char **search;
    size_t n_models;
    struct model *models;
    const struct model *default_model; /* or NULL */
};

const struct model *kg_models_find(const struct kg_models *models, const char *id);

#endif
