/* The oracle is a copy of what the kernel gave. PASS, whatever the kernel does: what
   tools/sensitivity --check finds, as no skew of the kernel is caught. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    const size_t bytes = FAULT_N * sizeof(float);
    const float *a = kg_pr(c, FAULT_N, 0, 1.0f), *b = kg_pr(c, FAULT_N, 7, 1.0f);
    struct kg_buf *da = kg_input(c, "a", a, bytes), *db = kg_input(c, "b", b, bytes);
    struct kg_buf *y = kg_output(c, "y", bytes);
    double want[FAULT_N], bound[FAULT_N];

    KG_ARM(c, "base", NULL,
           KG_OPS(c, elementwise, add)(kg_ptr(da), kg_ptr(db), kg_ptr(y), FAULT_N,
                                       kg_stream(c)));
    const float *got = kg_fetch(y);
    for (int i = 0; i < FAULT_N; i++) {
        want[i] = got[i];
        bound[i] = 1e-6;
    }
    kg_check_bound(c, "y", got, want, bound, FAULT_N);
}

FAULT_SECTION("fault-copied", run);
