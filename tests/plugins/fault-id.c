/* Two cells of one name. The plan is refused: bad-plan. */
#include "fault.h"

static void run(struct kg_cell *c, const void *row)
{
    (void)c;
    (void)row;
}

static void plan(struct kg_plan *p)
{
    kg_plan_add(p, &(struct kg_cell_spec){.id = "fault-id.cell", .run = run});
    kg_plan_addf(p, &(struct kg_cell_spec){.run = run}, "fault-id.%s", "cell");
}

const struct kg_section kgate_section = {.abi = KG_SECTION_ABI,
                                         .size = sizeof kgate_section,
                                         .name = "fault-id",
                                         .plan = plan};
