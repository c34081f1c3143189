/* One result of 24 is wrong by 1e-5, ten times the bound. FAIL check-failed. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    float *result = fault_result(c);
    result[17] += 1e-5f;
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL, FAULT_WRITE(c, kg_ptr(y), result, FAULT_N * sizeof *result));
    fault_check(c, y);
}

FAULT_SECTION("fault-wrong", run);
