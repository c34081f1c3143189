/*
 * plugins/dsv4_synthetic.h: the cells of dsv4-native that need no model.
 */
#ifndef KGATE_PLUGINS_DSV4_SYNTHETIC_H
#define KGATE_PLUGINS_DSV4_SYNTHETIC_H

#include "kgate/section.h"

void kg_dsv4_plan_synthetic(struct kg_plan *plan);
/* dsv4_special.c: NaN, ragged widths, and groups at the edge of the test of order. */
void kg_dsv4_plan_special(struct kg_plan *plan);
/* Shapes of the real model, for --bench; skipped on the emulated device. */
void kg_dsv4_plan_bench(struct kg_plan *plan);

#endif
