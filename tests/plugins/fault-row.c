/* Everything lands one row too far. FAIL check-failed, behind the last row. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    const float *result = fault_result(c);
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL,
           FAULT_WRITE(c, (float *)kg_ptr(y) + FAULT_COLS, result,
                       FAULT_N * sizeof *result));
    fault_check(c, y);
}

FAULT_SECTION("fault-row", run);
