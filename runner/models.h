/*
 * runner/models.h: models.yaml, and which file on this machine an id stands for.
 *
 * Candidates of an id, first existing wins:
 *   1. $KGATE_MODELS_DIR/NAME
 *   2. the --model path, when its last component is NAME
 *   3. DIR/NAME for each DIR of the search list
 *   4. the entry's legacy paths
 *   5. the same for the entry's fallback
 * NAME is the entry's `file` or `directory`. The id `$model` is the --model path whatever
 * its name; without --model it is the id that `default_model` names.
 */
#ifndef KG_RUNNER_MODELS_H
#define KG_RUNNER_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runner/error.h"

#define KG_MODEL_ARGUMENT "$model" /* the id that --model fills */

struct kg_models;

/* On success *models is to be freed by the caller; on failure it is NULL. */
int kg_models_load(const char *path, struct kg_models **models, struct kg_error *error);
void kg_models_free(struct kg_models *models);
const char *kg_models_path(const struct kg_models *models);
/* Ids in file order. */
size_t kg_models_count(const struct kg_models *models);
const char *kg_models_id(const struct kg_models *models, size_t index);
/* True for an id of the file, and for `$model`. */
bool kg_models_has(const struct kg_models *models, const char *id);

/* What the search depends on besides the file. NULL members are absent. */
struct kg_models_query {
    const char *models_dir; /* KGATE_MODELS_DIR */
    const char *model;      /* --model */
    const char *home;       /* HOME, for ~ in models.yaml */
};

enum kg_found {
    KG_FOUND_NOT = 0,
    KG_FOUND_MODELS_DIR, /* in $KGATE_MODELS_DIR */
    KG_FOUND_ARGUMENT,   /* --model */
    KG_FOUND_SEARCH,     /* in the search list */
    KG_FOUND_LEGACY,     /* one of the entry's own paths */
};

struct kg_resolved {
    enum kg_found found;
    char *asked;        /* the id that was asked for */
    char *id;           /* the entry that was found: differs from asked for a fallback and
                           for a defaulted `$model`; `$model` if --model filled it */
    char *path;         /* absolute; NULL if nothing was found */
    const char *format; /* "gguf", "safetensors", "safetensors-dir" */
    uint64_t bytes;     /* of the file, or of the regular files in the directory */
    bool fallback;      /* found through `fallback` */
    bool reduced;       /* the entry says so: real names and types, smaller shapes */
    bool synthetic;     /* the entry says so: a stand-in made by kgate-mkmodel (the file's
                           own metadata may say so too, which only the reader sees) */
    char *sha256;       /* 64 lower-case hex digits if the entry gives one, else NULL */
    size_t n_tried;     /* candidates looked at, the found one included */
    char **tried;
    char how[256];  /* "KGATE_MODELS_DIR", "--model", "search list: ~/models",
                           "legacy path", with ", fallback of ID" after it if it is one */
    char miss[512]; /* if not found: one line that says what to do */
};

/* Finds the file behind `id`. A file that is not there is not an error: found is
   KG_FOUND_NOT and miss says so. Fails for an id that models.yaml lacks (KG_E_INVALID)
   and for `$model` when the --model path is not there (KG_E_IO).
   On success the result is to be cleared by the caller. */
int kg_models_resolve(const struct kg_models *models, const struct kg_models_query *query,
                      const char *id, struct kg_resolved *resolved,
                      struct kg_error *error);
void kg_resolved_clear(struct kg_resolved *resolved);
/* The name of `found` in JSON: "models-dir", "argument", "search", "legacy", "missing". */
const char *kg_found_name(enum kg_found found);

/* SHA-256 of a regular file as 64 lower-case hex digits. */
int kg_models_sha256(const char *path, char hex[65], struct kg_error *error);

#endif
