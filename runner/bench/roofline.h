/*
 * runner/bench/roofline.h: how close a time is to what the device could do at best.
 *
 * Two floors: bytes over the memory ceiling, operations over the ceiling of the engine that
 * does them. The larger is the roofline; percent = floor / time. The ceilings are measured on
 * the same device in the same run (runner/bench/ceilings.h). More than 100 % says that the cost
 * is wrong or the data came from a cache, so the timing is invalid; it is never a record.
 */
#ifndef KG_RUNNER_BENCH_ROOFLINE_H
#define KG_RUNNER_BENCH_ROOFLINE_H

#include <stdbool.h>

#include "kgate/check.h"

struct kg_ceilings {
    double copy_gbps; /* device copy, bytes read plus bytes written, 1e9 bytes a second */
    double read_gbps; /* read-only sweep */
    double f16_tflops;      /* dense f16 matrix product, 1e12 operations a second */
    double int8_tops;       /* dense int8 matrix product */
    double empty_launch_us; /* one launch of an empty kernel, in a graph */
};

struct kg_roofline {
    double gbps;   /* cost.bytes / time; 0 if the cost has no bytes */
    double tflops; /* cost.ops / time */
    double floor_us;
    double percent; /* 100 * floor / time; 0 if no ceiling applies */
    bool memory_bound;
    bool invalid; /* percent > 100 */
};

/* `us` is the time of one launch, > 0. A cold read-only kernel may beat the copy rate, so the
   memory ceiling is the larger of copy and read. Engines "f16-mma" and "int8-mma" have
   ceilings; others are judged by their bytes alone. */
struct kg_roofline kg_roofline_of(const struct kg_cost *cost, double us,
                                  const struct kg_ceilings *ceilings);

#endif
