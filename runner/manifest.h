/*
 * runner/manifest.h: the battery, as docs/manifest.md describes it.
 *
 * Everything belongs to the manifest and dies with it.
 */
#ifndef KG_RUNNER_MANIFEST_H
#define KG_RUNNER_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runner/error.h"

/* Values used where neither the section nor the manifest gives one. */
#define KG_DEFAULT_CELL_SECONDS 60.0
#define KG_DEFAULT_SECTION_SECONDS 600.0
#define KG_DEFAULT_MEMORY_BYTES ((uint64_t)16 << 30)

struct kg_limits {
    double cell_seconds;    /* wall clock of one cell */
    double section_seconds; /* wall clock of one section, restarts included */
    uint64_t memory_bytes;  /* host memory of the section's process */
};

struct kg_manifest_artifact {
    const char *role; /* as the plugin names it */
    const char *id;   /* in models.yaml, or "$model": what --model names */
    int line, column; /* of the role */
};

struct kg_manifest_param {
    const char *key, *value;
    int line, column; /* of the key */
};

struct kg_manifest_section {
    const char *name; /* [a-z0-9][a-z0-9-]*, the plugin is NAME.so */
    size_t n_tags;
    const char *const *tags;
    size_t n_artifacts;
    const struct kg_manifest_artifact *artifacts;
    size_t n_params;
    const struct kg_manifest_param *params;
    struct kg_limits limits; /* complete: section, else manifest, else the defaults */
    bool optional;           /* the battery is complete without it */
    int line, column;
};

struct kg_manifest {
    const char *path; /* as given to kg_manifest_load */
    const char *name;
    const char *digest; /* XXH3-128 of the bytes, 32 hex digits */
    size_t n_sections;  /* at least 1, in running order, names unique */
    const struct kg_manifest_section *sections;
};

/* On success *manifest is to be freed by the caller; on failure it is NULL. */
int kg_manifest_load(const char *path, struct kg_manifest **manifest,
                     struct kg_error *error);
void kg_manifest_free(struct kg_manifest *manifest);

/* The section called `name`, or NULL. */
const struct kg_manifest_section *kg_manifest_find(const struct kg_manifest *manifest,
                                                   const char *name);
/* True if the section carries the tag. */
bool kg_manifest_has_tag(const struct kg_manifest_section *section, const char *tag);

#endif
