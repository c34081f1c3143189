/*
 * runner/paths.h: where plugins, providers, models.yaml, manifests and results are.
 *
 * An executable at BUILD/runner/kgate uses BUILD/plugins, BUILD/kernels and the source
 * tree; an installed one uses LIBDIR/kgate/{plugins,providers} and DATADIR/kgate. Options
 * override. Results go to ./results unless --results says otherwise.
 *
 * Code is loaded from configured folders only: a plugin or provider must be a regular
 * file that others cannot write, in a folder that others cannot write, and (links
 * followed) inside one of the folders. A provider that --provider or --against names may
 * be anywhere.
 */
#ifndef KG_RUNNER_PATHS_H
#define KG_RUNNER_PATHS_H

#include <stdbool.h>
#include <stddef.h>

#include "runner/error.h"
#include "runner/options.h"

struct kg_paths {
    bool build_tree;
    size_t n_plugin_dirs;
    char **plugin_dirs;
    char *provider_dir;
    char *manifest_dir;
    char *models;  /* models.yaml */
    char *results; /* made when the first result is written, not here */
};

/* Fills `paths`; clear it in either case. Fails if a folder or file that an option names
   does not exist; defaults are not looked at until they are used. */
int kg_paths_init(struct kg_paths *paths, const struct kg_options *options,
                  struct kg_error *error);
void kg_paths_clear(struct kg_paths *paths);

/* Each gives an absolute path that the caller frees. */

/* The plugin of a section. KG_E_IO if there is none, KG_E_INVALID if it is refused. */
int kg_paths_plugin(const struct kg_paths *paths, const char *section, char **path,
                    struct kg_error *error);
/* The provider that comes with kgate: "emu" or "cuda". */
int kg_paths_provider(const struct kg_paths *paths, const char *name, char **path,
                      struct kg_error *error);
/* A provider that an option named; `option` is "--provider" or "--against". */
int kg_paths_named_provider(const char *option, const char *file, char **path,
                            struct kg_error *error);
/* MANIFEST: a path if it has a slash or ends in .yaml and exists, else NAME.yaml among
   the manifests of kgate. The path is as short as it was given, for messages. */
int kg_paths_manifest(const struct kg_paths *paths, const char *argument, char **path,
                      struct kg_error *error);

#endif
