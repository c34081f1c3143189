/* The bound is infinite. ERROR oracle-degenerate: nothing could exceed it. */
#include <math.h>

#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    const float *result = fault_result(c);
    struct kg_buf *y = kg_output(c, "y", FAULT_N * sizeof *result);
    double *bound = kg_alloc(c, FAULT_N * sizeof *bound);
    KG_ARM(c, "base", NULL, FAULT_WRITE(c, kg_ptr(y), result, FAULT_N * sizeof *result));
    for (int i = 0; i < FAULT_N; i++)
        bound[i] = INFINITY;
    kg_check_bound(c, "y", kg_fetch(y), fault_oracle(c), bound, FAULT_N);
}

FAULT_SECTION("fault-infinite", run);
