/*
 * runner/merge.h: the shards of one battery, put together.
 */
#ifndef KG_RUNNER_MERGE_H
#define KG_RUNNER_MERGE_H

#include <jansson.h>

#include "runner/diff/load.h"

/* Joins results into a new one (new reference in *out). They must agree in manifest,
   provider, seeds, commit, device and driver, in the plugin and the artifacts of each
   section, and no cell may have been judged in two of them: what one shard lists as
   filtered another may have run. Else KG_E_INVALID with a line that says which field or
   cell, and in which files. `trees` are the same files as JSON. */
int kg_merge(struct kg_record *records, json_t *const *trees, size_t n, json_t **out,
             struct kg_error *error);

#endif
