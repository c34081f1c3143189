/* The oracle is zero everywhere, and so is the result. ERROR oracle-degenerate. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    const float *result = kg_alloc(c, FAULT_N * sizeof *result);
    const double *want = kg_alloc(c, FAULT_N * sizeof *want);
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL, FAULT_WRITE(c, kg_ptr(y), result, FAULT_N * sizeof *result));
    kg_check_band(c, "y", kg_fetch(y), want, FAULT_N, 1e-3, 1e-2);
}

FAULT_SECTION("fault-oracle", run);
