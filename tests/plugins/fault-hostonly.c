/* Compares the oracle with itself and runs no kernel. ERROR no-comparison. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_check_exact(c, "y", fault_oracle(c), fault_oracle(c), FAULT_N, sizeof(double));
}

FAULT_SECTION("fault-hostonly", run);
