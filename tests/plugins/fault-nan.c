/* One result is NaN. FAIL check-failed: NaN passes no comparison. */
#include <math.h>

#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    float *result = fault_result(c);
    result[3] = NAN;
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    KG_ARM(c, "base", NULL, FAULT_WRITE(c, kg_ptr(y), result, FAULT_N * sizeof *result));
    fault_check(c, y);
}

FAULT_SECTION("fault-nan", run);
