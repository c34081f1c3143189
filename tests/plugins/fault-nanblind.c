/* A result is NaN, and the section's own loop steps over it. ERROR no-comparison: a number
   that a section made is no comparison. */
#include <math.h>

#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    float *result = fault_result(c);
    result[3] = NAN;
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL, FAULT_WRITE(c, kg_ptr(y), result, FAULT_N * sizeof *result));
    const float *got = kg_fetch(y);
    const double *want = fault_oracle(c);
    double worst = 0;
    for (int i = 0; i < FAULT_N; i++)
        if (fabs(got[i] - want[i]) > worst)
            worst = fabs(got[i] - want[i]);
    kg_check_value(c, "y", "bound", worst, 1e-6);
}

FAULT_SECTION("fault-nanblind", run);
