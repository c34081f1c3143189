/* runner/diff/cells.h: the "sections" and "cells" of a result file, for load.c. */
#ifndef KG_RUNNER_DIFF_CELLS_H
#define KG_RUNNER_DIFF_CELLS_H

#include "runner/diff/load.h"
#include "runner/diff/scan.h"

/* Errors are in scan->error. The arrays are malloc'ed and belong to the result. */
void kg_record_read_sections(struct kg_scan *scan, struct kg_record *result);
void kg_record_read_cells(struct kg_scan *scan, struct kg_record *result);
/* "timings": one object per arm, of a struct kg_record_cell; the context is the struct
   kg_record, whose arena has the memory. For kg_scan_fields. */
void kg_record_read_timings(struct kg_scan *scan, void *cell, void *record);
/* memcpy into the result's arena; NULL for no bytes. */
void *kg_record_keep(struct kg_record *result, const void *from, size_t bytes);

#endif
