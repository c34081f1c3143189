/*
 * runner/bench/arm.h: the timed repetitions of an arm, after its checked one.
 *
 * A --bench job times every arm that states its cost, once its checked repetition is done and
 * verified. The repetitions run on copies of the buffers that the checked one used (inputs and
 * inouts with their first bytes, outputs poisoned), so what is compared later stays as it was.
 */
#ifndef KG_RUNNER_BENCH_ARM_H
#define KG_RUNNER_BENCH_ARM_H

#include <jansson.h>
#include <stdbool.h>

#include "runner/bench/calibrate.h"

struct kg_cell;

/* What a --bench job asks for; `on` is false in a plain run. */
struct kg_bench_job {
    bool on, warm; /* warm: the warm series beside the cold one */
    struct kg_calibration calibration;
};

/* Reads the job's "bench" (NULL: off). KG_E_FORMAT if it is malformed. */
int kg_bench_job_read(const json_t *json, struct kg_bench_job *out);

/* After the checked repetition: true if timed ones follow. */
bool kg_bench_begin(struct kg_cell *cell);
/* True: repeat the launch, with every kg_ptr on the copies of this repetition. */
bool kg_bench_next(struct kg_cell *cell);
void kg_bench_launched(struct kg_cell *cell, int status);
/* Frees whatever a cell that left in the middle kept. */
void kg_bench_abort(struct kg_cell *cell);

#endif
