/* Compares the result with itself. ERROR misuse. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    const float *result = fault_result(c);
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL, FAULT_WRITE(c, kg_ptr(y), result, FAULT_N * sizeof *result));
    kg_check_exact(c, "y", kg_fetch(y), kg_fetch(y), FAULT_N, sizeof *result);
}

FAULT_SECTION("fault-self", run);
