/* Plans no cell. The plan is refused: bad-plan. */
#include "fault.h"

static void plan(struct kg_plan *p)
{
    kg_plan_alloc(p, 100);
}

const struct kg_section kgate_section = {.abi = KG_SECTION_ABI,
                                         .size = sizeof kgate_section,
                                         .name = "fault-empty",
                                         .plan = plan};
