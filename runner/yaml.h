/*
 * runner/yaml.h: a strict reader of the YAML that kgate accepts.
 *
 * The accepted language is small: one document of scalars, sequences and mappings with
 * scalar keys. Anchors, aliases, tags, directives, duplicate keys, several documents,
 * nesting deeper than 16, files over 1 MiB, more than 100,000 nodes, bytes that are not
 * UTF-8, and NUL are refused. Every refusal is one line, FILE:LINE:COLUMN: TEXT.
 *
 * Nodes and their text belong to the document and die with it.
 */
#ifndef KG_RUNNER_YAML_H
#define KG_RUNNER_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runner/error.h"

#define KG_YAML_MAX_BYTES (1u << 20)
#define KG_YAML_MAX_DEPTH 16
#define KG_YAML_MAX_NODES 100000u

enum kg_yaml_kind { KG_YAML_SCALAR, KG_YAML_SEQUENCE, KG_YAML_MAPPING };

struct kg_yaml_node {
    enum kg_yaml_kind kind;
    int line, column; /* of the node's first character, from 1 */
    const char *text; /* scalar: NUL-terminated UTF-8; else NULL */
    bool quoted;      /* scalar written in quotes or as a block: always a string */
    size_t count;     /* sequence: items; mapping: pairs */
    struct kg_yaml_node **keys;  /* mapping: count scalars; else NULL */
    struct kg_yaml_node **items; /* sequence: the items; mapping: the values */
};

struct kg_yaml;

/* Reads a file. Messages call it `path`. On success *yaml is to be freed by the caller;
   on failure it is NULL and the error is set. */
int kg_yaml_load(const char *path, struct kg_yaml **yaml, struct kg_error *error);
/* The same from memory; `name` stands for the file in messages. */
int kg_yaml_parse(const char *name, const void *bytes, size_t size, struct kg_yaml **yaml,
                  struct kg_error *error);
void kg_yaml_free(struct kg_yaml *yaml);

const struct kg_yaml_node *kg_yaml_root(const struct kg_yaml *yaml);
/* The name used in messages. */
const char *kg_yaml_name(const struct kg_yaml *yaml);
/* XXH3-128 of the file's bytes as 32 hex digits. */
const char *kg_yaml_digest(const struct kg_yaml *yaml);

/* Sets an error at `node`; returns KG_E_FORMAT. */
int kg_yaml_error(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                  struct kg_error *error, const char *format, ...) KG_PRINTF(4, 5);

/* The value of `key` in a mapping, or NULL. */
const struct kg_yaml_node *kg_yaml_get(const struct kg_yaml_node *mapping,
                                       const char *key);

/* The value of a key that has to be there; if it is not, sets an error at the mapping that
   says "WHAT: missing key KEY" and returns NULL. */
const struct kg_yaml_node *kg_yaml_require(const struct kg_yaml *yaml,
                                           const struct kg_yaml_node *mapping,
                                           const char *key, const char *what,
                                           struct kg_error *error);

/* Typed readers. `what` names the thing in messages ("limits", "the name of a section").
   A NULL node returns the error that kg_yaml_require set. All return 0 or KG_E_FORMAT. */

/* A mapping whose keys are all in `known`, which ends with NULL; known NULL allows any
   key. An unknown key is reported with the nearest known one. */
int kg_yaml_mapping(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                    const char *what, const char *const *known, struct kg_error *error);
int kg_yaml_sequence(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                     const char *what, struct kg_error *error);
/* A scalar that is not empty. *text belongs to the document. */
int kg_yaml_string(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                   const char *what, const char **text, struct kg_error *error);
/* `true` or `false`, unquoted. */
int kg_yaml_bool(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                 const char *what, bool *value, struct kg_error *error);
/* A decimal number in min..max, unquoted. */
int kg_yaml_int(const struct kg_yaml *yaml, const struct kg_yaml_node *node,
                const char *what, int64_t min, int64_t max, int64_t *value,
                struct kg_error *error);

#endif
