/* Exports nothing. The section cannot be loaded: bad-plugin. */
#include "fault.h"

const int fault_symbol = 1;
