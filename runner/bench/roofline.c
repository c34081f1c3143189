#include "runner/bench/roofline.h"

#include <string.h>

static double engine_ceiling(const struct kg_ceilings *c, const char *engine)
{
    if (!engine)
        return 0;
    if (strcmp(engine, "f16-mma") == 0)
        return c->f16_tflops;
    if (strcmp(engine, "int8-mma") == 0)
        return c->int8_tops;
    return 0;
}

struct kg_roofline kg_roofline_of(const struct kg_cost *cost, double us,
                                  const struct kg_ceilings *ceilings)
{
    struct kg_roofline r = {0};
    r.gbps = cost->bytes / us * 1e-3;
    r.tflops = cost->ops / us * 1e-6;
    double memory = ceilings->copy_gbps > ceilings->read_gbps ? ceilings->copy_gbps
                                                              : ceilings->read_gbps;
    double compute = engine_ceiling(ceilings, cost->engine);
    double memory_us = memory > 0 ? cost->bytes / memory * 1e-3 : 0;
    double compute_us = compute > 0 ? cost->ops / compute * 1e-6 : 0;
    r.memory_bound = memory_us >= compute_us;
    r.floor_us = r.memory_bound ? memory_us : compute_us;
    r.percent = 100 * r.floor_us / us;
    r.invalid = r.percent > 100;
    return r;
}
