/*
 * device/memory.h: loads at any alignment, and asynchronous copies to shared memory.
 *
 * Quantized blocks are packed (Q8_0 is 34 bytes), so a word in them is often aligned to 2
 * bytes only. kg_load_u32 wants 4, kg_load_u32_a2 wants 2, kg_load_u32_a1 wants nothing.
 *
 * kg_prefetch_l2 asks L2 for the 128 bytes around p. L2 is where writes of other multiprocessors
 * arrive, so this fixes no value and may stand before kg_grid_wait() (overlap.h), whoever is
 * still writing there. On the emulated device it does nothing.
 *
 * kg_cp_async_N copies N bytes from global to shared memory, both aligned to N; with
 * `bytes` < N the rest is filled with zeros. On the emulated device the copy happens when
 * kg_cp_async_wait() covers it, not before: a forgotten wait reads the poison.
 */
#ifndef KG_DEVICE_MEMORY_H
#define KG_DEVICE_MEMORY_H

#include <stdint.h>

static __device__ __forceinline__ uint16_t kg_load_u16(const void *p)
{
    return *(const uint16_t *)p;
}

static __device__ __forceinline__ uint32_t kg_load_u32(const void *p)
{
    return *(const uint32_t *)p;
}

static __device__ __forceinline__ uint32_t kg_load_u32_a2(const void *p)
{
    const uint16_t *h = (const uint16_t *)p;
    return h[0] | (uint32_t)h[1] << 16;
}

static __device__ __forceinline__ uint16_t kg_load_u16_a1(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static __device__ __forceinline__ uint32_t kg_load_u32_a1(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static __device__ __forceinline__ uint2 kg_load_uint2(const void *p)
{
    return *(const uint2 *)p;
}

static __device__ __forceinline__ uint4 kg_load_uint4(const void *p)
{
    return *(const uint4 *)p;
}

static __device__ __forceinline__ float4 kg_load_float4(const void *p)
{
    return *(const float4 *)p;
}

#if defined(KG_EMU)

#include "../emu/mma.h"

static inline void kg_prefetch_l2(const void *)
{
}
static inline void kg_cp_async_4(void *shared, const void *global, int bytes = 4)
{
    kg_emu_cp_async(shared, global, 4, bytes);
}
static inline void kg_cp_async_8(void *shared, const void *global, int bytes = 8)
{
    kg_emu_cp_async(shared, global, 8, bytes);
}
static inline void kg_cp_async_16(void *shared, const void *global, int bytes = 16)
{
    kg_emu_cp_async(shared, global, 16, bytes);
}
static inline void kg_cp_async_commit(void)
{
    kg_emu_cp_async_commit();
}
/* Until at most N committed groups are still under way. */
template <int N>
static inline void kg_cp_async_wait(void)
{
    kg_emu_cp_async_wait(N);
}

#else

static __device__ __forceinline__ uint32_t kg_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

static __device__ __forceinline__ void kg_prefetch_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
static __device__ __forceinline__ void kg_cp_async_4(void *shared, const void *global,
                                                     int bytes = 4)
{
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(kg_shared_address(shared)),
        "l"(global), "r"(bytes)
        : "memory");
}
static __device__ __forceinline__ void kg_cp_async_8(void *shared, const void *global,
                                                     int bytes = 8)
{
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(kg_shared_address(shared)),
        "l"(global), "r"(bytes)
        : "memory");
}
static __device__ __forceinline__ void kg_cp_async_16(void *shared, const void *global,
                                                      int bytes = 16)
{
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(kg_shared_address(shared)),
        "l"(global), "r"(bytes)
        : "memory");
}
static __device__ __forceinline__ void kg_cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
static __device__ __forceinline__ void kg_cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
#endif
