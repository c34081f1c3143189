/* Runs a kernel and compares nothing. ERROR no-comparison. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    const float *result = fault_result(c);
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL, FAULT_WRITE(c, kg_ptr(y), result, FAULT_N * sizeof *result));
    kg_info(c, "first", (double)*(const float *)kg_fetch(y));
}

FAULT_SECTION("fault-nothing", run);
