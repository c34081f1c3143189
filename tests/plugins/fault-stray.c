/* Right results, and one byte in front of them. FAIL check-failed. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    const float *result = fault_result(c);
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL,
           KG_SEQ(FAULT_WRITE(c, kg_ptr(y), result, FAULT_N * sizeof *result),
                  FAULT_WRITE(c, (char *)kg_ptr(y) - 1, "", 1)));
    fault_check(c, y);
}

FAULT_SECTION("fault-stray", run);
