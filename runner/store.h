/*
 * runner/store.h: where results go, and getting them there in one piece.
 *
 * A run has a folder DIR/20260101T120000Z-abc1234-hostname with result.json and logs/;
 * DIR/latest points at the newest. Whether the folder can be written is found out before
 * the run; if it cannot any more after it, the result goes to the temporary folder.
 */
#ifndef KG_RUNNER_STORE_H
#define KG_RUNNER_STORE_H

#include <jansson.h>

#include "runner/error.h"

struct kg_store {
    char *folder; /* of this run */
    char *logs;   /* folder/logs */
    char *result; /* folder/result.json */
    char *parent; /* where "latest" is */
};

/* Makes the folders and writes a probe file of the size of a large result. `commit` may
   be "". Clear the store in either case. */
int kg_store_open(struct kg_store *store, const char *results_dir, const char *started,
                  const char *commit, const char *host, struct kg_error *error);
/* Writes to a temporary file beside `path`, syncs, renames. */
int kg_store_write_json(const char *path, const json_t *json, struct kg_error *error);
/* Writes the run's result and moves "latest". On failure the result is written to the
   temporary folder instead, *fallback (new memory) says where (NULL if that failed too),
   and the error is set all the same. */
int kg_store_finish(struct kg_store *store, const json_t *json, char **fallback,
                    struct kg_error *error);
/* Removes the run's folder again if no result was written: a run that never began. */
void kg_store_discard(struct kg_store *store);
void kg_store_clear(struct kg_store *store);

#endif
