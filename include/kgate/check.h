/*
 * kgate/check.h: everything a cell may call.
 *
 * A cell uploads inputs, runs an arm, fetches the output, and compares it with an oracle:
 *
 *   static void run_rms_norm(struct kg_cell *c, const void *row_)
 *   {
 *       const struct row *row = row_;
 *       size_t n = (size_t)row->rows * row->cols;
 *       const float *x = kg_pr(c, n, 0, 1.0f);
 *       struct kg_buf *dx = kg_input(c, "x", x, n * sizeof *x);
 *       struct kg_buf *dy = kg_output(c, "y", n * sizeof *x);
 *       KG_ARM(c, "base", NULL,
 *              KG_OPS(c, norms, rms_norm)(kg_ptr(dx), kg_ptr(dy), row->rows, row->cols,
 *                                         kg_stream(c)));
 *       kg_check_bound(c, "y", kg_fetch(dy), want, bound, n);
 *   }
 *
 * Errors: none of these functions reports failure to the cell. When a cell cannot go on
 * (out of memory, a launch refused, a device fault, a wrong argument) the call does not
 * return and the cell ends with the verdict that the case deserves. A failed *check* does
 * return, so that one cell can report several. Do not call these functions from OpenMP
 * regions or other threads.
 *
 * Memory: all that comes from a cell is freed when the cell ends.
 * Verdict: FAIL if a check failed, whatever came after it; else PASS if something was
 * compared and at least one arm ran; else ERROR no-comparison.
 * Names (buffers, arms, checks, parameters): 1 to 128 printable ASCII characters.
 */
#ifndef KGATE_CHECK_H
#define KGATE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kgate/artifact.h"
#include "kgate/kernels.h"
#include "kgate/section.h"
#include "kgate/status.h"
#include "kgate/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kg_buf;

/* ---- host memory and data ---- */

/* Zeroed memory, aligned to 64 bytes. bytes may be 0. */
KG_EXPORT void *kg_alloc(struct kg_cell *cell, size_t bytes);

/* Element i of the pinned test vector, in [-1, 1):
   x = low 32 bits of (i * 2654435761 ^ 0x9E3779B9), ((x >> 8) / 2^24) * 2 - 1.
   With --seed N the index is shifted by a hash of N; without it, it is exactly this. */
KG_EXPORT float kg_pr_at(const struct kg_cell *cell, uint64_t i);

/* n values pr(i + offset) * scale, i = 0 .. n-1. */
KG_EXPORT float *kg_pr(struct kg_cell *cell, size_t n, uint64_t offset, float scale);

/* ---- what the run was given ---- */

/* The artifact behind a role. Does not return if it is missing (SKIP artifact-missing).
 */
KG_EXPORT const struct kg_artifact *kg_artifact(struct kg_cell *cell, const char *role);

/* A tensor of it. Does not return if there is no such tensor (SKIP tensor-missing). */
KG_EXPORT const struct kg_tensor *kg_tensor(struct kg_cell *cell, const char *role,
                                            const char *name);

/* The value of `key` under the section's `params:` in the manifest, or NULL. The key must be
   among those that the section declares. */
KG_EXPORT const char *kg_option(const struct kg_cell *cell, const char *key);

KG_EXPORT const struct kg_device_info *kg_device(const struct kg_cell *cell);

/* ---- device buffers ---- */
/* Every buffer stands between two guards, which are verified after each arm and at the
   end; so are the bytes of inputs up to 64 MiB (above 1 MiB only at the end). A write to
   either ends the cell as FAIL. The guard after an input holds 0xFF bytes, which read as NaN in f32, f16, bf16 and
   e4m3, so that a read past the end shows. Outputs are filled with 0xFF. Names appear in
   messages and digests. */

KG_EXPORT struct kg_buf *kg_input(struct kg_cell *cell, const char *name,
                                  const void *host, size_t bytes);
KG_EXPORT struct kg_buf *kg_output(struct kg_cell *cell, const char *name, size_t bytes);
/* Starts with the host's bytes and is written by the kernel. */
KG_EXPORT struct kg_buf *kg_inout(struct kg_cell *cell, const char *name,
                                  const void *host, size_t bytes);
/* Scratch: poisoned like an output, may be left partly written, never digested. */
KG_EXPORT struct kg_buf *kg_scratch(struct kg_cell *cell, const char *name, size_t bytes);
/* The device pointer, for use inside KG_ARM. Take it there, not before: under --bench and
   --against each repetition has buffers of its own. NULL buffer gives NULL. */
KG_EXPORT void *kg_ptr(struct kg_buf *buf);
/* Downloads the buffer. The bytes stay valid until the cell ends. An output's digest is
   recorded under "ARM/NAME", ARM being the last one that ran; an arm that runs again and
   again has one digest that depends on all of its fetches. An output that was fetched and
   is used by a later arm must pass kg_reset before it is fetched again (ERROR misuse):
   else an arm that writes nothing would pass on its predecessor's results. */
KG_EXPORT const void *kg_fetch(struct kg_buf *buf);
/* Makes the buffer as it was at creation: outputs poisoned, inouts with their bytes. */
KG_EXPORT void kg_reset(struct kg_buf *buf);

/* ---- running kernels ---- */

/* What an arm must move and compute at the least; 0 where it does not apply. */
struct kg_cost {
    double bytes;       /* each input read once, each output written once */
    double ops;         /* multiply and add count as two */
    const char *engine; /* what does the ops: "f32", "f16-mma", "int8-mma", "dp4a" */
};

/* Runs one arm: `call` is an expression that launches and gives a status. It is evaluated
   once in a plain run, more often under --bench and --against, so it must not have side
   effects of its own; chain launches with KG_SEQ(first, second). KG_E_UNSUPPORTED ends
   the cell as SKIP device-unsupported, any other error as FAIL. Returns after the device
   has finished. */
#define KG_ARM(cell, arm, cost, call)                                                    \
    for (kg_arm_begin((cell), (arm), (cost)); kg_arm_next((cell));)                      \
    kg_arm_end((cell), (call))

/* Two launches as one expression, the second only if the first was accepted. Nests. */
#define KG_SEQ(first, second) ((first) ?: (second))

/* The launcher `entry` of table `family` of the provider under test. Does not return if
   the provider lacks it (SKIP kernel-missing). */
#define KG_OPS(cell, family, entry)                                                      \
    (((const struct kg_##family##_ops *)kg_ops_(                                         \
          (cell), offsetof(struct kg_provider, family),                                  \
          offsetof(struct kg_##family##_ops, entry),                                     \
          sizeof(((struct kg_##family##_ops *)0)->entry), #family "." #entry))           \
         ->entry)

KG_EXPORT void kg_arm_begin(struct kg_cell *cell, const char *arm,
                            const struct kg_cost *cost);
KG_EXPORT bool kg_arm_next(struct kg_cell *cell);
KG_EXPORT void kg_arm_end(struct kg_cell *cell, int status);
KG_EXPORT const void *kg_ops_(struct kg_cell *cell, size_t table_offset,
                              size_t entry_offset, size_t entry_bytes, const char *name);
KG_EXPORT struct CUstream_st *kg_stream(const struct kg_cell *cell);
/* The provider under test, for what KG_OPS does not cover (device->alloc and the like).
 */
KG_EXPORT const struct kg_provider *kg_provider(const struct kg_cell *cell);

/* ---- verdicts ---- */
/* Each check has a name, unique in its cell. All return whether it held. NaN never
   passes: a check holds only if err <= bound. An oracle that is not finite, or is zero
   everywhere, ends the cell as ERROR unless kg_oracle_allow said that it may be. */

enum kg_oracle_flag {
    KG_ORACLE_ZERO = 1u << 0,      /* every element may be zero */
    KG_ORACLE_NONFINITE = 1u << 1, /* NaN and infinities are expected; they must match */
};
KG_EXPORT void kg_oracle_allow(struct kg_cell *cell,
                               uint32_t flags); /* for the next check */

/* exact: no byte differs. `elem_bytes` (1, 2, 4, 8) is for the report: which element.
   Where both sides were fetched, an element that both left poisoned is a difference.
   got and want must not be the same array; this holds for every check of arrays. */
KG_EXPORT bool kg_check_exact(struct kg_cell *cell, const char *name, const void *got,
                              const void *want, size_t count, size_t elem_bytes);

/* bound: |got[i] - want[i]| <= bound[i] for every i. margin = the worst err / bound. */
KG_EXPORT bool kg_check_bound(struct kg_cell *cell, const char *name, const float *got,
                              const double *want, const double *bound, size_t count);

/* band: max |got - want| / max(max |want|, floor) <= limit. */
KG_EXPORT bool kg_check_band(struct kg_cell *cell, const char *name, const float *got,
                             const double *want, size_t count, double floor,
                             double limit);

/* A single number that must not exceed its limit, of class "bound" or "band". It does not
   count as a comparison: how the section came to the number nobody can tell. */
KG_EXPORT bool kg_check_value(struct kg_cell *cell, const char *name,
                              const char *class_name, double value, double limit);

/* A condition, reported as an exact check; `format` says what was seen. */
KG_EXPORT bool kg_check_that(struct kg_cell *cell, const char *name, bool holds,
                             const char *format, ...) KG_PRINTF(4, 5);

/* info: recorded, never fails and does not count as a comparison. */
KG_EXPORT void kg_info(struct kg_cell *cell, const char *name, double value);

/* What the cell ran on; shown in the result beside the checks. */
KG_EXPORT void kg_param_i(struct kg_cell *cell, const char *name, int64_t value);
KG_EXPORT void kg_param_f(struct kg_cell *cell, const char *name, double value);
KG_EXPORT void kg_param_s(struct kg_cell *cell, const char *name, const char *value);
/* A remark for the log and the result ("pinned tensor absent, substituted ..."). */
KG_EXPORT void kg_note(struct kg_cell *cell, const char *format, ...) KG_PRINTF(2, 3);

/* End the cell here. Skip reasons are codes: not-applicable, tensor-missing,
   device-unsupported, kernel-missing, artifact-missing; the text says the particulars. */
KG_EXPORT KG_NORETURN void kg_skip(struct kg_cell *cell, const char *reason,
                                   const char *format, ...) KG_PRINTF(3, 4);
KG_EXPORT KG_NORETURN void kg_fail(struct kg_cell *cell, const char *format, ...)
    KG_PRINTF(2, 3);
KG_EXPORT KG_NORETURN void kg_error(struct kg_cell *cell, const char *format, ...)
    KG_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
