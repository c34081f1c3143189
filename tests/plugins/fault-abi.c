/* Built for another ABI. The section cannot be loaded: bad-plugin. */
#include "fault.h"

static void plan(struct kg_plan *p)
{
    (void)p;
}

const struct kg_section kgate_section = {.abi = KG_SECTION_ABI + 1,
                                         .size = sizeof kgate_section,
                                         .name = "fault-abi",
                                         .plan = plan};
