/* Calls a function that kgate lacks. The section cannot be loaded: bad-plugin. */
#include "fault.h"

void kg_from_the_future(struct kg_cell *cell);

static void run(struct kg_cell *c, const void *row)
{
    (void)row;
    kg_from_the_future(c);
}

FAULT_SECTION("fault-undefined", run);
