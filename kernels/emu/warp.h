/*
 * emu/warp.h: barriers and warp collectives of the emulated device, with CUDA's names.
 */
#ifndef KG_EMU_WARP_H
#define KG_EMU_WARP_H

#include <stdint.h>
#include <string.h>

#include "emu.h"

enum kg_emu_shuffle {
    KG_EMU_SHFL_IDX,
    KG_EMU_SHFL_UP,
    KG_EMU_SHFL_DOWN,
    KG_EMU_SHFL_XOR,
};

enum kg_emu_reduce {
    KG_EMU_ADD,
    KG_EMU_MIN_S,
    KG_EMU_MAX_S,
    KG_EMU_MIN_U,
    KG_EMU_MAX_U,
    KG_EMU_AND,
    KG_EMU_OR,
    KG_EMU_XOR,
};

struct kg_emu_barrier_result {
    int count;
    int n_threads;
};

struct kg_emu_barrier_result kg_emu_block_barrier(int predicate);
void kg_emu_warp_barrier(uint32_t mask);
uint64_t kg_emu_shuffle(enum kg_emu_shuffle mode, uint32_t mask, uint64_t value,
                        int operand, int width);
uint32_t kg_emu_ballot(uint32_t mask, int predicate);
uint32_t kg_emu_reduce(enum kg_emu_reduce op, uint32_t mask, uint32_t value);
uint32_t kg_emu_match_any(uint32_t mask, uint64_t value);
void kg_emu_yield(void);

static inline void __syncthreads(void)
{
    kg_emu_block_barrier(0);
}
static inline int __syncthreads_count(int predicate)
{
    return kg_emu_block_barrier(predicate).count;
}
static inline int __syncthreads_or(int predicate)
{
    return kg_emu_block_barrier(predicate).count != 0;
}
static inline int __syncthreads_and(int predicate)
{
    struct kg_emu_barrier_result r = kg_emu_block_barrier(predicate);
    return r.count == r.n_threads;
}
static inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
    kg_emu_warp_barrier(mask);
}
static inline void __nanosleep(unsigned)
{
    kg_emu_yield();
}

template <typename T>
static inline T kg_emu_shuffle_as(enum kg_emu_shuffle mode, uint32_t mask, T value,
                                  int operand, int width)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = kg_emu_shuffle(mode, mask, bits, operand, width);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <typename T>
static inline T __shfl_sync(uint32_t mask, T value, int lane, int width = 32)
{
    return kg_emu_shuffle_as(KG_EMU_SHFL_IDX, mask, value, lane, width);
}
template <typename T>
static inline T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32)
{
    return kg_emu_shuffle_as(KG_EMU_SHFL_UP, mask, value, (int)delta, width);
}
template <typename T>
static inline T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32)
{
    return kg_emu_shuffle_as(KG_EMU_SHFL_DOWN, mask, value, (int)delta, width);
}
template <typename T>
static inline T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32)
{
    return kg_emu_shuffle_as(KG_EMU_SHFL_XOR, mask, value, lane_mask, width);
}

static inline uint32_t __ballot_sync(uint32_t mask, int predicate)
{
    return kg_emu_ballot(mask, predicate);
}
static inline int __any_sync(uint32_t mask, int predicate)
{
    return kg_emu_ballot(mask, predicate) != 0;
}
static inline int __all_sync(uint32_t mask, int predicate)
{
    return kg_emu_ballot(mask, predicate) == mask;
}
template <typename T>
static inline uint32_t __match_any_sync(uint32_t mask, T value)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a match compares 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return kg_emu_match_any(mask, bits);
}

static inline unsigned __reduce_add_sync(uint32_t mask, unsigned value)
{
    return kg_emu_reduce(KG_EMU_ADD, mask, value);
}
static inline int __reduce_add_sync(uint32_t mask, int value)
{
    return (int)kg_emu_reduce(KG_EMU_ADD, mask, (uint32_t)value);
}
static inline unsigned __reduce_min_sync(uint32_t mask, unsigned value)
{
    return kg_emu_reduce(KG_EMU_MIN_U, mask, value);
}
static inline int __reduce_min_sync(uint32_t mask, int value)
{
    return (int)kg_emu_reduce(KG_EMU_MIN_S, mask, (uint32_t)value);
}
static inline unsigned __reduce_max_sync(uint32_t mask, unsigned value)
{
    return kg_emu_reduce(KG_EMU_MAX_U, mask, value);
}
static inline int __reduce_max_sync(uint32_t mask, int value)
{
    return (int)kg_emu_reduce(KG_EMU_MAX_S, mask, (uint32_t)value);
}
static inline unsigned __reduce_and_sync(uint32_t mask, unsigned value)
{
    return kg_emu_reduce(KG_EMU_AND, mask, value);
}
static inline unsigned __reduce_or_sync(uint32_t mask, unsigned value)
{
    return kg_emu_reduce(KG_EMU_OR, mask, value);
}
static inline unsigned __reduce_xor_sync(uint32_t mask, unsigned value)
{
    return kg_emu_reduce(KG_EMU_XOR, mask, value);
}

#endif
