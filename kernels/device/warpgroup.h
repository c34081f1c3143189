/*
 * device/warpgroup.h: products of halves by the four warps of a warpgroup together, which run
 * beside the instructions that follow them.
 *
 *   kg_warpgroup_begin      before products whose registers other instructions have touched
 *   kg_warpgroup_b          what stands for a B, or for several with multiples of 16 bytes between
 *   kg_warpgroup_product    D = A B, or D += A B if `add`; B is `bytes` behind that of kg_warpgroup_b
 *   kg_warpgroup_commit     ends a group of products
 *   kg_warpgroup_wait<N>    until at most the N last groups are under way. Until then nobody may
 *                           touch D, the registers of A, or B
 *
 *   kg_warpgroup_any        whether it is so in any thread of the warpgroup, or at least of the
 *                           warp; for what products come next, which all four warps must agree on
 *
 *   kg_warpgroup_registers  gives each thread of the warpgroup so many, a multiple of 8, which the
 *                           others of the block must have left or let go
 *
 * B has come by bulk copies. D is 64 x 64, A 64 x 16. Of both a warp has 16 rows, in the registers of mma.m16n8k16: d[4j + e]
 * is element e of columns 8j .. 8j + 7. B lies in shared memory, aligned to 16 bytes: column 8j + i
 * has its k 0 .. 7 at 256 j + 16 i, and its k 8 .. 15 128 bytes further.
 *
 * wgmma on compute capability 9.0a; elsewhere each warp multiplies for itself, at once.
 */
#ifndef KG_DEVICE_WARPGROUP_H
#define KG_DEVICE_WARPGROUP_H

#include "f16x2.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#include "sm90.h"

template <int FEW, int MANY>
static __device__ __forceinline__ void kg_warpgroup_registers(bool many)
{
    if (many)
        kg_registers_grow<MANY>();
    else
        kg_registers_shrink<FEW>();
}
/* Barrier 1 + its number. */
static __device__ __forceinline__ bool kg_warpgroup_any(bool x)
{
    uint32_t any;
    asm volatile("{\n"
                 ".reg .pred p, q;\n"
                 "setp.ne.u32 p, %1, 0;\n"
                 "barrier.cta.red.or.pred q, %2, 128, p;\n"
                 "selp.u32 %0, 1, 0, q;\n"
                 "}"
                 : "=r"(any)
                 : "r"((uint32_t)x), "r"(1 + threadIdx.x / 128)
                 : "memory");
    return any != 0;
}
static __device__ __forceinline__ void kg_warpgroup_begin(void)
{
    kg_wgmma_fence();
}
typedef uint32_t kg_warpgroup_operand; /* the low half of a descriptor */
static __device__ __forceinline__ kg_warpgroup_operand kg_warpgroup_b(const void *shared)
{
    return (uint32_t)kg_wgmma_descriptor(shared, 128, 256, KG_SWIZZLE_NONE);
}
static __device__ __forceinline__ void kg_warpgroup_product(float (&d)[32],
                                                            const uint32_t (&a)[4],
                                                            kg_warpgroup_operand b,
                                                            uint32_t bytes, bool add)
{
    const uint64_t high = kg_wgmma_descriptor(nullptr, 128, 256, KG_SWIZZLE_NONE) >> 32;
    kg_wgmma_f16_rs<0>(d, a, high << 32 | (b + (bytes >> 4)), add);
}
static __device__ __forceinline__ void kg_warpgroup_commit(void)
{
    kg_wgmma_commit();
}
/* d: what the caller reads next. */
template <int N>
static __device__ __forceinline__ void kg_warpgroup_wait(float (&d)[32])
{
    kg_wgmma_wait<N>();
    kg_wgmma_touch(d);
}

#else

template <int FEW, int MANY>
static __device__ inline void kg_warpgroup_registers(bool)
{
}
static __device__ inline bool kg_warpgroup_any(bool x)
{
    return __any_sync(KG_WARP_ALL, x) != 0;
}
static __device__ inline void kg_warpgroup_begin(void)
{
}
typedef const unsigned char *kg_warpgroup_operand;
static __device__ inline kg_warpgroup_operand kg_warpgroup_b(const void *shared)
{
    return (const unsigned char *)shared;
}
static __device__ inline void kg_warpgroup_product(float (&d)[32], const uint32_t (&a)[4],
                                                   kg_warpgroup_operand b, uint32_t bytes,
                                                   bool add)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const unsigned char *at = b + bytes + j * 256 + threadIdx.x % 32 * 4;
        const uint32_t fragment[2] = {kg_load_u32(at), kg_load_u32(at + 128)};
        if (add)
            kg_mma_f16_16816(d + 4 * j, a, fragment);
        else
            kg_mma_f16_from(d + 4 * j, a, fragment, 0.0f);
    }
}
static __device__ inline void kg_warpgroup_commit(void)
{
}
template <int N>
static __device__ inline void kg_warpgroup_wait(float (&)[32])
{
}

#endif
#endif
