/*
 * runner/select.h: which sections and cells of a battery run.
 *
 * All parts must hold: any of the tags, any of the --only substrings (of the section's
 * name), any of the --cell globs (of the cell's id), the shard. What is left out is not
 * dropped: it is reported as SKIP `filtered` with the text that these functions give.
 */
#ifndef KG_RUNNER_SELECT_H
#define KG_RUNNER_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runner/error.h"
#include "runner/manifest.h"

/* The tag of sections that are nothing without a model file. */
#define KG_TAG_ARTIFACT "artifact"

struct kg_select {
    size_t n_tags, n_only, n_cells;
    char **tags, **only, **cells; /* lists of n strings */
    bool only_from_environment;   /* KGATE_ONLY rather than --only, for messages */
    bool fast_from_environment;   /* KGATE_FAST rather than --fast */
    bool fast;                    /* no model files: sections tagged `artifact` and cells
                                     with a role are left out (job: no_artifacts) */
    uint32_t shard, n_shards;     /* shard 1..n_shards; n_shards 0 or 1: all cells */
};

/* If the section runs. If not, `why` gets "filtered: --only a,b" and the like. A section
   that no --cell glob can match is left out without starting it. */
bool kg_select_section(const struct kg_select *select,
                       const struct kg_manifest_section *section, char *why, size_t size);
/* If the cell runs; `role` is its artifact's role or NULL. Assumes its section runs. */
bool kg_select_cell(const struct kg_select *select, const char *id, const char *role,
                    char *why, size_t size);
/* The shard of a cell, 1..n_shards: depends on the id and the number only. */
uint32_t kg_select_shard_of(const char *id, uint32_t n_shards);
/* The whole selection as one line ("--tag a --only b"), "everything" if nothing is
   restricted. */
const char *kg_select_describe(const struct kg_select *select, char *buffer, size_t size);
/* Fails (KG_E_INVALID, one line) if no section of the manifest is selected, or if a word
   of --tag or --only fits none. */
int kg_select_require_section(const struct kg_select *select,
                              const struct kg_manifest *manifest, struct kg_error *error);
/* To be called when all sections are planned, with the ids of all their cells: fails if a
   --cell matches none of them, or if none was selected. */
int kg_select_require_cells(const struct kg_select *select, const char *const *ids,
                            size_t n_ids, size_t n_selected, struct kg_error *error);
void kg_select_clear(struct kg_select *select);

#endif
