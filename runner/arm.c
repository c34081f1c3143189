/*
 * The loop behind KG_ARM:
 *
 *   for (kg_arm_begin(...); kg_arm_next(...);) kg_arm_end(..., launch)
 *
 *   CLOSED or DONE --begin--> READY --next: true--> RUNNING --end--> READY or DONE
 *                                                   DONE --next: false--> DONE
 *
 * kg_arm_next decides whether there is another repetition and makes kg_ptr give that
 * repetition's buffers; kg_arm_end is told what the launch said. A plain run has one
 * repetition, on the primary buffers, and that is the one whose results are checked.
 * Timed repetitions (--bench) come after it: kg_arm_end then returns to READY, kg_arm_next
 * points `current` of every buffer at a copy (bench/arm.c), and the primary buffers stay
 * as the checked repetition left them.
 */
#include <string.h>

#include "runner/cell.h"

void kg_arm_begin(struct kg_cell *cell, const char *arm, const struct kg_cost *cost)
{
    kg_cell_outside_arm(cell, "KG_ARM");
    kg_cell_need_name(cell, "an arm", arm);
    strcpy(cell->arm, arm);
    cell->arm_number++;
    cell->has_cost = cost != NULL;
    cell->cost = cost ? *cost : (struct kg_cost){0};
    cell->timed = false;
    cell->arm_state = KG_ARM_READY;
}

bool kg_arm_next(struct kg_cell *cell)
{
    if (cell->arm_state == KG_ARM_DONE)
        return false;
    if (cell->arm_state != KG_ARM_READY)
        kg_cell_misuse(cell, "kg_arm_next out of turn");
    if (cell->timed && !kg_bench_next(cell)) {
        cell->arm_state = KG_ARM_DONE;
        return false;
    }
    cell->arm_state = KG_ARM_RUNNING;
    cell->arm_started = kg_seconds_now();
    return true;
}

void kg_arm_end(struct kg_cell *cell, int status)
{
    if (cell->arm_state != KG_ARM_RUNNING)
        kg_cell_misuse(cell, "kg_arm_end out of turn");
    if (cell->timed) {
        kg_bench_launched(cell, status);
        cell->arm_state = KG_ARM_READY;
        return;
    }
    const struct kg_device_ops *d = cell->host->seat.provider->device;
    if (status == KG_E_UNSUPPORTED) {
        /* A first launch of several may be under way. */
        kg_cell_device(cell, d->sync(cell->host->seat.stream), "arm", cell->arm);
        kg_cell_leave(cell, KG_SKIP, "device-unsupported", "arm %s", cell->arm);
    }
    kg_cell_device(cell, status, "arm", cell->arm);
    kg_cell_device(cell, d->sync(cell->host->seat.stream), "arm", cell->arm);
    cell->times.kernel += kg_seconds_now() - cell->arm_started;
    cell->arm_state = KG_ARM_DONE;
    kg_buffers_verify_arm(cell);
    json_object_set_new(cell->arms_done, cell->arm, json_true());
    cell->timed = kg_bench_begin(cell);
    if (cell->timed)
        cell->arm_state = KG_ARM_READY;
}

const void *kg_ops_(struct kg_cell *cell, size_t table_offset, size_t entry_offset,
                    size_t entry_bytes, const char *name)
{
    const struct kg_provider *provider = cell->host->seat.provider;
    const unsigned char *table = NULL;
    if (provider->size >= table_offset + sizeof table)
        memcpy(&table, (const unsigned char *)provider + table_offset, sizeof table);
    uint32_t size = 0;
    void (*entry)(void) = NULL;
    if (table != NULL)
        memcpy(&size, table, sizeof size);
    if (entry_bytes == sizeof entry && size >= entry_offset + entry_bytes)
        memcpy(&entry, table + entry_offset, sizeof entry);
    if (entry == NULL)
        kg_cell_leave(cell, KG_SKIP, "kernel-missing", "provider %s has no %s",
                      provider->name, name);
    if (cell->arm_state == KG_ARM_RUNNING)
        cell->ops_taken_in = cell->arm_number;
    return table;
}
