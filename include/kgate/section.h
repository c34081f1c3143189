/*
 * kgate/section.h: the plugin ABI. One gate section is one shared object.
 *
 * The object exports one symbol, `kgate_section`, a constant struct kg_section. kgate
 * loads it with dlopen(RTLD_NOW | RTLD_LOCAL), reads `abi` and `size` before anything
 * else, and calls plan() in a process of the section's own. plan() lists the cells; kgate
 * runs them one by one in that order, each between "begun" and "done" events, so that a
 * crash costs the one cell it happened in. What a cell may call is in kgate/check.h;
 * those functions live in the kgate executable, a plugin links against nothing.
 */
#ifndef KGATE_SECTION_H
#define KGATE_SECTION_H

#include <stddef.h>
#include <stdint.h>

#include "kgate/status.h"
#include "kgate/types.h"

#define KG_SECTION_ABI 1u
#define KG_SECTION_SYMBOL "kgate_section"

struct kg_cell;
struct kg_plan;
struct kg_artifact;

/* Runs one cell. `row` is what the plan gave; it must stay valid until the process ends.
 */
typedef void kg_cell_fn(struct kg_cell *cell, const void *row);

enum kg_cell_flag {
    /* The order of every floating-point operation is fixed by the source, so the output
       has the same bits on every device; digests are compared between emu and cuda. */
    KG_CELL_ORDERED = 1u << 0,
    /* The battery is complete without it (the tensor it names is not in every model). */
    KG_CELL_OPTIONAL = 1u << 1,
};

struct kg_cell_spec {
    const char *id; /* "dtype5.nvfp4.stage-a": the section's name, a dot, lower case */
    kg_cell_fn *run;
    const void *row; /* passed to run */
    const char
        *role; /* the artifact without which the cell SKIPs artifact-missing, or NULL */
    uint32_t flags; /* kg_cell_flag */
};

/* A name under which the section asks for an artifact; the manifest says which one it is.
 */
struct kg_role {
    const char *name;
    const char *format;  /* "gguf" or "safetensors-dir" or "safetensors" */
    const char *purpose; /* one line, shown by `kgate list` */
};

/* A key under the section's `params:` in the manifest that the section reads
   (kg_option). */
struct kg_section_param {
    const char *name;
    const char *purpose; /* one line */
};

struct kg_section {
    uint32_t abi;  /* KG_SECTION_ABI */
    uint32_t size; /* sizeof(struct kg_section) */
    const char *name;
    const char *summary;         /* one line */
    const struct kg_role *roles; /* ends with a NULL name; NULL if none */
    /* Required. Adds every cell, in running order. The same artifacts give the same
     * cells. */
    void (*plan)(struct kg_plan *plan);
    /* Ends with a NULL name; NULL if none. A manifest that gives another is refused. */
    const struct kg_section_param *params;
};

#ifdef __cplusplus
extern "C" {
#endif

extern KG_EXPORT const struct kg_section kgate_section;

/* Adds a cell; spec and its strings are copied. A malformed or repeated id ends the
   section with ERROR. */
KG_EXPORT void kg_plan_add(struct kg_plan *plan, const struct kg_cell_spec *spec);

/* As kg_plan_add, with the id made by printf from the arguments; spec->id is ignored. */
KG_EXPORT void kg_plan_addf(struct kg_plan *plan, const struct kg_cell_spec *spec,
                            const char *id_format, ...) KG_PRINTF(3, 4);

/* The artifact behind a role, or NULL if it is not on this machine or was filtered out.
 */
KG_EXPORT const struct kg_artifact *kg_plan_artifact(struct kg_plan *plan,
                                                     const char *role);

/* Memory that lives as long as the plan, zeroed; for rows made at planning time. */
KG_EXPORT void *kg_plan_alloc(struct kg_plan *plan, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
