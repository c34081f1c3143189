/* The last row is never written. FAIL check-failed. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    const float *result = fault_result(c);
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL,
           FAULT_WRITE(c, kg_ptr(y), result, (FAULT_N - FAULT_COLS) * sizeof *result));
    fault_check(c, y);
}

FAULT_SECTION("fault-short", run);
