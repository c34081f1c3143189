/* The table ends before plan. The section cannot be loaded: bad-plugin. */
#include "fault.h"

const struct kg_section kgate_section = {.abi = KG_SECTION_ABI,
                                         .size = offsetof(struct kg_section, plan),
                                         .name = "fault-small"};
