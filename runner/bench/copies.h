/*
 * runner/bench/copies.h: buffers for the timed repetitions of an arm.
 *
 * The buffers that the checked repetition used are copied as often as there are rotations:
 * inputs and inouts with their first bytes, outputs poisoned. The copies lie on the provider
 * that works when they are made, which with --against need not be the cell's own.
 */
#ifndef KG_RUNNER_BENCH_COPIES_H
#define KG_RUNNER_BENCH_COPIES_H

struct kg_cell;

/* So many that twice the L2 passes before a set comes round again, as far as half of the
   free memory goes. */
int kg_copies_wanted(const struct kg_cell *cell);
/* Leaves the cell if it cannot. */
void kg_copies_make(struct kg_cell *cell, int count);
/* Lets every kg_ptr give the copies of this rotation, on the provider that works. */
void kg_copies_turn(struct kg_cell *cell, int rotation);
/* Releases the copies on both providers; kg_ptr gives the first buffers again. */
void kg_copies_drop(struct kg_cell *cell);

#endif
