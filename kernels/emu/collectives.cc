/*
 * emu/collectives.cc: what the lanes of a warp do together.
 *
 * A lane leaves its operands in the warp and waits; the last lane to arrive checks that all
 * named lanes meet in the same collective, computes every lane's result, and wakes them.
 */
#include <string.h>

#include "mma.h"
#include "schedule.h"

/* True for the last lane, which shall do the work and then call finish(). */
static bool arrive(struct kg_emu_lane *self, uint32_t kind, uint32_t mask)
{
    struct kg_emu_warp *warp = self->warp;
    uint32_t lane = self->lane;
    if ((mask >> lane & 1u) == 0)
        kg_emu_fault(
            "lane %u calls a warp collective with mask 0x%08x, which leaves it out", lane,
            mask);
    if ((mask & ~warp->live) != 0)
        kg_emu_fault(
            "a warp collective (mask 0x%08x) names lane %d, which has exited or does "
            "not exist",
            mask, __builtin_ctz(mask & ~warp->live));
    warp->mask[lane] = mask;
    warp->kind[lane] = kind;
    warp->waiting |= 1u << lane;
    if ((warp->waiting & mask) != mask)
        return false;
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        uint32_t other = (uint32_t)__builtin_ctz(lanes);
        if (warp->mask[other] != mask) /* it is busy with another group */
            return false;
        if (warp->kind[other] != kind)
            kg_emu_fault(
                "lanes %u and %u meet in different warp collectives (mask 0x%08x)", lane,
                other, mask);
    }
    warp->waiting &= ~mask;
    return true;
}

static void finish(struct kg_emu_lane *self, uint32_t mask)
{
    kg_emu_wake(self->warp, mask & ~(1u << self->lane));
    kg_emu_reschedule();
}

#define FOR_LANES(lane, mask)                                                            \
    for (uint32_t left_##lane = (mask), lane;                                            \
         left_##lane != 0 && (lane = (uint32_t)__builtin_ctz(left_##lane), true);        \
         left_##lane &= left_##lane - 1)

void kg_emu_warp_barrier(uint32_t mask)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    if (arrive(self, KG_EMU_SYNCWARP, mask))
        finish(self, mask);
    else
        kg_emu_wait_for_wake();
}

/* The lane that PTX's shfl reads; out of the segment means the lane itself. */
static int source_lane(enum kg_emu_shuffle mode, int lane, int operand, int width)
{
    int first = lane & ~(width - 1);
    int last = first + width - 1;
    int source = lane;
    switch (mode) {
    case KG_EMU_SHFL_IDX:
        return first + (operand & (width - 1));
    case KG_EMU_SHFL_UP:
        source = lane - (operand & 31);
        return source < first ? lane : source;
    case KG_EMU_SHFL_DOWN:
        source = lane + (operand & 31);
        break;
    case KG_EMU_SHFL_XOR:
        source = lane ^ (operand & 31);
        break;
    }
    return source > last ? lane : source;
}

uint64_t kg_emu_shuffle(enum kg_emu_shuffle mode, uint32_t mask, uint64_t value,
                        int operand, int width)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    struct kg_emu_warp *warp = self->warp;
    if (width < 1 || width > 32 || (width & (width - 1)) != 0)
        kg_emu_fault("a shuffle with width %d", width);
    warp->value[self->lane] = value;
    warp->source[self->lane] = source_lane(mode, (int)self->lane, operand, width);
    if (arrive(self, KG_EMU_SHUFFLE | (uint32_t)mode << 8, mask)) {
        /* Reading a lane that takes no part is undefined: it gives all ones, a NaN. */
        FOR_LANES(lane, mask)
        {
            int source = warp->source[lane];
            warp->result[lane] = (mask >> source & 1u) != 0 ? warp->value[source] : ~0ull;
        }
        finish(self, mask);
    } else {
        kg_emu_wait_for_wake();
    }
    return warp->result[self->lane];
}

uint32_t kg_emu_ballot(uint32_t mask, int predicate)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    struct kg_emu_warp *warp = self->warp;
    warp->value[self->lane] = predicate != 0;
    if (arrive(self, KG_EMU_VOTE, mask)) {
        uint32_t votes = 0;
        FOR_LANES(lane, mask)
        votes |= (uint32_t)warp->value[lane] << lane;
        FOR_LANES(lane, mask)
        warp->result[lane] = votes;
        finish(self, mask);
    } else {
        kg_emu_wait_for_wake();
    }
    return (uint32_t)warp->result[self->lane];
}

uint32_t kg_emu_match_any(uint32_t mask, uint64_t value)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    struct kg_emu_warp *warp = self->warp;
    warp->value[self->lane] = value;
    if (arrive(self, KG_EMU_MATCH, mask)) {
        FOR_LANES(lane, mask)
        {
            uint32_t same = 0;
            FOR_LANES(other, mask)
            same |= (uint32_t)(warp->value[other] == warp->value[lane]) << other;
            warp->result[lane] = same;
        }
        finish(self, mask);
    } else {
        kg_emu_wait_for_wake();
    }
    return (uint32_t)warp->result[self->lane];
}

static uint32_t reduce_two(enum kg_emu_reduce op, uint32_t x, uint32_t y)
{
    switch (op) {
    case KG_EMU_ADD:
        return x + y;
    case KG_EMU_MIN_S:
        return (int32_t)x < (int32_t)y ? x : y;
    case KG_EMU_MAX_S:
        return (int32_t)x > (int32_t)y ? x : y;
    case KG_EMU_MIN_U:
        return x < y ? x : y;
    case KG_EMU_MAX_U:
        return x > y ? x : y;
    case KG_EMU_AND:
        return x & y;
    case KG_EMU_OR:
        return x | y;
    case KG_EMU_XOR:
        return x ^ y;
    }
    return 0;
}

uint32_t kg_emu_reduce(enum kg_emu_reduce op, uint32_t mask, uint32_t value)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    struct kg_emu_warp *warp = self->warp;
    warp->value[self->lane] = value;
    if (arrive(self, KG_EMU_REDUCE | (uint32_t)op << 8, mask)) {
        uint32_t sum = value;
        FOR_LANES(lane, mask & ~(1u << self->lane))
        sum = reduce_two(op, sum, (uint32_t)warp->value[lane]);
        FOR_LANES(lane, mask)
        warp->result[lane] = sum;
        finish(self, mask);
    } else {
        kg_emu_wait_for_wake();
    }
    return (uint32_t)warp->result[self->lane];
}

void kg_emu_ldmatrix(uint32_t *r, const void *row, int n_matrices, bool transpose)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    struct kg_emu_warp *warp = self->warp;
    const uint32_t all = 0xffffffffu;
    warp->d[self->lane] = r;
    warp->a[self->lane] = static_cast<const uint32_t *>(row);
    if ((int)self->lane < 8 * n_matrices && (uintptr_t)row % 16 != 0)
        kg_emu_fault("ldmatrix from an address that is not a multiple of 16");
    if (!arrive(self, KG_EMU_LDMATRIX | (uint32_t)(2 * n_matrices + transpose) << 8,
                all)) {
        kg_emu_wait_for_wake();
        return;
    }
    for (int m = 0; m < n_matrices; m++) {
        uint16_t matrix[8][8];
        for (int i = 0; i < 8; i++)
            memcpy(matrix[i], warp->a[8 * m + i], 16);
        for (int lane = 0; lane < 32; lane++) {
            int g = lane / 4, t = lane % 4;
            uint16_t lo = transpose ? matrix[2 * t][g] : matrix[g][2 * t];
            uint16_t hi = transpose ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
            static_cast<uint32_t *>(warp->d[lane])[m] = lo | (uint32_t)hi << 16;
        }
    }
    finish(self, all);
}

void kg_emu_mma(enum kg_emu_mma kind, void *d, const uint32_t *a, const uint32_t *b)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    struct kg_emu_warp *warp = self->warp;
    const uint32_t all = 0xffffffffu;
    warp->d[self->lane] = d;
    warp->a[self->lane] = a;
    warp->b[self->lane] = b;
    if (!arrive(self, KG_EMU_MMA | (uint32_t)kind << 8, all)) {
        kg_emu_wait_for_wake();
        return;
    }
    kg_emu_mma_warp(kind, warp->d, warp->a, warp->b);
    finish(self, all);
}

void kg_emu_cp_async(void *shared, const void *global, int size, int bytes)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    if (bytes < 0 || bytes > size || (uintptr_t)shared % (unsigned)size != 0 ||
        (bytes != 0 && (uintptr_t)global % (unsigned)size != 0))
        kg_emu_fault("cp.async of %d bytes (%d valid) between misaligned addresses", size,
                     bytes);
    self->copies.push_back(
        {shared, global, (uint8_t)size, (uint8_t)bytes, self->copy_groups});
}

void kg_emu_cp_async_commit(void)
{
    kg_emu_lane_self()->copy_groups++;
}

void kg_emu_cp_async_wait(int groups_left)
{
    struct kg_emu_lane *self = kg_emu_lane_self();
    size_t done = 0;
    for (; done < self->copies.size(); done++) {
        const kg_emu_copy &copy = self->copies[done];
        if ((int64_t)copy.group >= (int64_t)self->copy_groups - groups_left)
            break;
        char *to = static_cast<char *>(copy.to);
        memcpy(to, copy.from, copy.bytes);
        memset(to + copy.bytes, 0, (size_t)(copy.size - copy.bytes));
    }
    self->copies.erase(self->copies.begin(), self->copies.begin() + (ptrdiff_t)done);
}
