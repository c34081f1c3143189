/*
 * runner/bench/calibrate.h: what the device can do, measured before the cells of a --bench run.
 *
 * In a host process of its own (job mode "calibrate"). Every figure comes from the timer that
 * times the cells, policy "cold":
 *   copy_gbps        2 x bytes / median, for a copy of 1 GiB
 *   read_gbps        bytes / median, for a sweep over 2 GiB
 *   f16_tflops       2 m n k / median, 8192 cubed through cuBLASLt, pr-like data
 *   int8_tops        likewise, int8
 *   empty_launch_us  one empty kernel in a graph
 *   noise            the A/A pairs: the copy and the empty launch are each timed `pairs` times
 *                    twice in a row; the largest |median A / median B - 1|
 */
#ifndef KG_RUNNER_BENCH_CALIBRATE_H
#define KG_RUNNER_BENCH_CALIBRATE_H

#include <jansson.h>

#include "kgate/kernels.h"
#include "kgate/ops/device.h"
#include "runner/bench/roofline.h"
#include "runner/error.h"

struct kg_calibration {
    struct kg_ceilings ceilings;
    double noise; /* relative */
    int pairs;
};

/* The device is open. Allocates about 4 GiB of it, less where it has less. */
int kg_calibrate(const struct kg_provider *provider, const struct kg_device_info *device,
                 struct CUstream_st *stream, struct kg_calibration *out,
                 struct kg_error *error);

/* As it stands in the result (run.bench) and in a job; kg_calibration_read refuses
   anything else. */
json_t *kg_calibration_json(const struct kg_calibration *calibration);
int kg_calibration_read(const json_t *json, struct kg_calibration *out);

#endif
