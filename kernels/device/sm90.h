/*
 * device/sm90.h: what only compute capability 9.0a has: wgmma, mbarriers, bulk copies.
 *
 * For sm90_*.cu files of the CUDA provider; the emulated device has none of it.
 *
 * wgmma: D (64 x N, in registers) += A (64 x k) B (k x N), by the four warps of a
 * warpgroup together; k is 16 for half and bf16, 32 for bytes. N is twice the size of d:
 * 64, 128 and 256; of half and bf16 also 32, 80, 96 and 192. Warp w has rows
 * 16w .. 16w + 15; with g = lane / 4 and t = lane % 4,
 *
 *   d[4j], d[4j + 1]        row g,     columns 8j + 2t, 8j + 2t + 1
 *   d[4j + 2], d[4j + 3]    row g + 8, the same columns
 *
 * A is a descriptor (_ss) or four registers laid out as those of mma.sync m16n8k16 (_rs).
 * `accumulate` 0 overwrites D. TRANS is 0 for an operand whose k runs along a row
 * of shared memory ("K-major") and 1 for one whose m or n does ("MN-major"); bytes have only
 * the first. A sequence is kg_wgmma_fence, products, kg_wgmma_commit, kg_wgmma_wait<0>;
 * until then neither D nor the registers of A may be touched.
 *
 * Shared memory of an operand, with a 128-byte swizzle: rows of 128 bytes, the tile aligned
 * to 1024 bytes, the 16-byte chunk c of row r stored at chunk c ^ (r % 8)
 * (kg_swizzle_128; what TMA writes with CU_TENSOR_MAP_SWIZZLE_128B).
 *
 *   K-major   a row is one m or n and has 64 halves (128 bytes) of k; `step` is not
 *             used; `stride` = 1024, from 8 rows to the next 8. The next k16 (k32 of bytes)
 *             is 32 bytes further: add it to the address.
 *   MN-major  a row is one k and has 64 halves of m or n. `stride` = 1024, from 8 k to the
 *             next 8; `step`: from 64 of m or n to the next 64. The next k16 is 2048
 *             bytes further.
 */
#ifndef KG_DEVICE_SM90_H
#define KG_DEVICE_SM90_H

#if defined(KG_EMU)
#error "sm90.h has no emulation: return KG_E_UNSUPPORTED in front of it"
#endif

#include <cuda.h> /* CUtensorMap; no driver symbol is linked */
#include <stdint.h>

#include "device.h"

/* ---- mbarriers ---- */

static __device__ __forceinline__ void kg_mbarrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(kg_shared_address(barrier)),
        "r"(arrivals)
        : "memory");
}

/* After the inits, before another proxy or another block of the cluster uses them. */
static __device__ __forceinline__ void kg_mbarrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void kg_mbarrier_arrive(uint64_t *barrier)
{
    asm volatile(
        "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(kg_shared_address(barrier))
        : "memory");
}

/* One arrival that also announces `bytes` of bulk copies. */
static __device__ __forceinline__ void kg_mbarrier_expect(uint64_t *barrier,
                                                          uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     kg_shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ bool kg_mbarrier_try_wait(uint64_t *barrier,
                                                            uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(done)
                 : "r"(kg_shared_address(barrier)), "r"(parity)
                 : "memory");
    return done != 0;
}

/* Until the phase of that parity is over: 0 for the first, then 1, 0, ... */
static __device__ __forceinline__ void kg_mbarrier_wait(uint64_t *barrier,
                                                        uint32_t parity)
{
    while (!kg_mbarrier_try_wait(barrier, parity)) {
    }
}

/* kg_cp_async_16 to an address in shared memory that is in a register already. */
static __device__ __forceinline__ void kg_cp_async_16_at(uint32_t shared,
                                                         const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global)
                 : "memory");
}

/* The mbarrier arrives when this thread's earlier cp.async have landed. */
static __device__ __forceinline__ void kg_cp_async_arrive(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     kg_shared_address(barrier))
                 : "memory");
}

/* Ordinary writes to shared memory become visible to wgmma and bulk copies. */
static __device__ __forceinline__ void kg_fence_proxy_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- bulk copies: global to shared memory, by one thread ---- */

/* Both addresses and bytes are multiples of 16. */
static __device__ __forceinline__ void kg_bulk_load(void *shared, const void *global,
                                                    uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(kg_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(kg_shared_address(barrier))
                 : "memory");
}

/* The box at (x, y, ..) of a tensor map, x the fastest coordinate. The map is a
   __grid_constant__ parameter of the kernel. */
static __device__ __forceinline__ void
kg_tma_load_2d(void *shared, const CUtensorMap *map, int x, int y, uint64_t *barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(kg_shared_address(shared)),
        "l"((uint64_t)map), "r"(x), "r"(y), "r"(kg_shared_address(barrier))
        : "memory");
}

static __device__ __forceinline__ void kg_tma_load_3d(void *shared,
                                                      const CUtensorMap *map, int x,
                                                      int y, int z, uint64_t *barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(kg_shared_address(shared)),
        "l"((uint64_t)map), "r"(x), "r"(y), "r"(z), "r"(kg_shared_address(barrier))
        : "memory");
}

/* ---- registers ---- */

/* Registers of each thread from now on, a multiple of 8; the whole warpgroup calls. */
template <int N>
static __device__ __forceinline__ void kg_registers_grow(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
static __device__ __forceinline__ void kg_registers_shrink(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* A barrier of `threads` threads, number 1..15 (0 is __syncthreads). */
static __device__ __forceinline__ void kg_named_barrier_sync(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
static __device__ __forceinline__ void kg_named_barrier_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* ---- conversions ---- */

/* 2^x within 2^-22 of itself; results below 2^-126 are 0. */
static __device__ __forceinline__ float kg_exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x within an ulp; of a result below 2^-126, 0. */
static __device__ __forceinline__ float kg_reciprocal_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two numbers rounded to nearest even, lo in bits 0..15: one instruction. That for halves is
   kg_round_half2 of f16x2.h. */
static __device__ __forceinline__ uint32_t kg_pack_bf162_fast(float lo, float hi)
{
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}

/* ---- wgmma ---- */

static __device__ __forceinline__ void kg_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void kg_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most N committed groups are still under way. */
template <int N>
static __device__ __forceinline__ void kg_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Tells the compiler that d changes here; put it behind the wait where d was last
   named before it. */
template <int N>
static __device__ __forceinline__ void kg_wgmma_touch(float (&d)[N])
{
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* The same for registers of A: until here they hold what the products read. */
static __device__ __forceinline__ void kg_wgmma_touch_a(uint32_t (&a)[4][4])
{
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+r"(a[k][i])::"memory");
}

enum kg_swizzle { KG_SWIZZLE_NONE, KG_SWIZZLE_128, KG_SWIZZLE_64, KG_SWIZZLE_32 };

/* Byte offset of 16-byte chunk `chunk` of 128-byte row `row` in a swizzled tile. */
static __device__ __forceinline__ uint32_t kg_swizzle_128(uint32_t row, uint32_t chunk)
{
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

/* Descriptor of an operand; step and stride in bytes. */
static __device__ __forceinline__ uint64_t kg_wgmma_descriptor(const void *shared,
                                                               uint32_t step,
                                                               uint32_t stride,
                                                               enum kg_swizzle swizzle)
{
    return (uint64_t)((kg_shared_address(shared) & 0x3ffff) >> 4) |
           (uint64_t)(step >> 4 & 0x3fff) << 16 | (uint64_t)(stride >> 4 & 0x3fff) << 32 |
           (uint64_t)swizzle << 62;
}

/* The descriptor of the same operand `bytes` further. */
static __device__ __forceinline__ uint64_t kg_wgmma_advance(uint64_t descriptor,
                                                            uint32_t bytes)
{
    return descriptor + (bytes >> 4);
}

/* Operands %0 .. of d, and d itself as asm operands. */
#define KG_D_LIST_16                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define KG_D_LIST_32                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "       \
    "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define KG_D_LIST_40                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "       \
    "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "        \
    "%32, %33, %34, %35, %36, %37, %38, %39}"
#define KG_D_LIST_48                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "       \
    "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "        \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "        \
    "%47}"
#define KG_D_LIST_64                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "       \
    "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "        \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "        \
    "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "        \
    "%62, %63}"
#define KG_D_LIST_96                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "       \
    "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "        \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "        \
    "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "        \
    "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "        \
    "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "        \
    "%92, %93, %94, %95}"
#define KG_D_LIST_128                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "       \
    "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "        \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "        \
    "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "        \
    "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "        \
    "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "        \
    "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "       \
    "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "           \
    "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"
#define KG_D_4(c, i) "+" c(d[i]), "+" c(d[i + 1]), "+" c(d[i + 2]), "+" c(d[i + 3])
#define KG_D_16_AT(c, i)                                                                 \
    KG_D_4(c, i), KG_D_4(c, i + 4), KG_D_4(c, i + 8), KG_D_4(c, i + 12)
#define KG_D_16(c) KG_D_16_AT(c, 0)
#define KG_D_32(c) KG_D_16_AT(c, 0), KG_D_16_AT(c, 16)
#define KG_D_40(c) KG_D_32(c), KG_D_4(c, 32), KG_D_4(c, 36)
#define KG_D_48(c) KG_D_32(c), KG_D_16_AT(c, 32)
#define KG_D_64(c) KG_D_32(c), KG_D_16_AT(c, 32), KG_D_16_AT(c, 48)
#define KG_D_96(c) KG_D_64(c), KG_D_16_AT(c, 64), KG_D_16_AT(c, 80)
#define KG_D_128(c)                                                                      \
    KG_D_64(c), KG_D_16_AT(c, 64), KG_D_16_AT(c, 80), KG_D_16_AT(c, 96),                 \
        KG_D_16_AT(c, 112)

/* regs: registers of d; ra, rb, rp, rt, ru: numbers of the operands behind them. */
#define KG_WGMMA_HALF(name, n, regs, types, r0, r1, r2, r3, r4, r5, r6)                  \
    template <int TRANS_A, int TRANS_B>                                                  \
    static __device__ __forceinline__ void name##_ss(float(&d)[regs], uint64_t a,        \
                                                     uint64_t b, int accumulate = 1)     \
    {                                                                                    \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r2 ", 0;\n"                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." types             \
                     " " KG_D_LIST_##regs ", %" #r0 ", %" #r1 ", p, 1, 1, %" #r3         \
                                          ", %" #r4 ";\n}"                               \
                     : KG_D_##regs("f")                                                  \
                     : "l"(a), "l"(b), "r"(accumulate), "n"(TRANS_A), "n"(TRANS_B));     \
    }                                                                                    \
    template <int TRANS_B>                                                               \
    static __device__ __forceinline__ void name##_rs(                                    \
        float(&d)[regs], const uint32_t(&a)[4], uint64_t b, int accumulate = 1)          \
    {                                                                                    \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r5 ", 0;\n"                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." types             \
                     " " KG_D_LIST_##regs ", {%" #r0 ", %" #r1 ", %" #r2 ", %" #r3       \
                                          "}, %" #r4 ", p, 1, 1, %" #r6 ";\n}"           \
                     : KG_D_##regs("f")                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),               \
                       "r"(accumulate), "n"(TRANS_B));                                   \
    }
#define KG_WGMMA_BYTE(name, n, regs, c, type, out, types, immediates, r0, r1, r2)        \
    static __device__ __forceinline__ void name##_ss(type(&d)[regs], uint64_t a,         \
                                                     uint64_t b, int accumulate = 1)     \
    {                                                                                    \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r2 ", 0;\n"                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k32." out "." types         \
                     " " KG_D_LIST_##regs ", %" #r0 ", %" #r1 ", p" immediates ";\n}"    \
                     : KG_D_##regs(c)                                                    \
                     : "l"(a), "l"(b), "r"(accumulate));                                 \
    }
KG_WGMMA_HALF(kg_wgmma_f16, 32, 16, "f16.f16", 16, 17, 18, 19, 20, 21, 22)
KG_WGMMA_HALF(kg_wgmma_bf16, 32, 16, "bf16.bf16", 16, 17, 18, 19, 20, 21, 22)
KG_WGMMA_HALF(kg_wgmma_f16, 64, 32, "f16.f16", 32, 33, 34, 35, 36, 37, 38)
KG_WGMMA_HALF(kg_wgmma_bf16, 64, 32, "bf16.bf16", 32, 33, 34, 35, 36, 37, 38)
KG_WGMMA_BYTE(kg_wgmma_s8, 64, 32, "r", int, "s32", "s8.s8", "", 32, 33, 34)
KG_WGMMA_BYTE(kg_wgmma_e4m3, 64, 32, "f", float, "f32", "e4m3.e4m3", ", 1, 1", 32, 33, 34)
KG_WGMMA_HALF(kg_wgmma_f16, 80, 40, "f16.f16", 40, 41, 42, 43, 44, 45, 46)
KG_WGMMA_HALF(kg_wgmma_bf16, 80, 40, "bf16.bf16", 40, 41, 42, 43, 44, 45, 46)
KG_WGMMA_HALF(kg_wgmma_f16, 96, 48, "f16.f16", 48, 49, 50, 51, 52, 53, 54)
KG_WGMMA_HALF(kg_wgmma_bf16, 96, 48, "bf16.bf16", 48, 49, 50, 51, 52, 53, 54)
KG_WGMMA_HALF(kg_wgmma_f16, 128, 64, "f16.f16", 64, 65, 66, 67, 68, 69, 70)
KG_WGMMA_HALF(kg_wgmma_bf16, 128, 64, "bf16.bf16", 64, 65, 66, 67, 68, 69, 70)
KG_WGMMA_BYTE(kg_wgmma_s8, 128, 64, "r", int, "s32", "s8.s8", "", 64, 65, 66)
KG_WGMMA_BYTE(kg_wgmma_e4m3, 128, 64, "f", float, "f32", "e4m3.e4m3", ", 1, 1", 64, 65,
              66)
KG_WGMMA_HALF(kg_wgmma_f16, 192, 96, "f16.f16", 96, 97, 98, 99, 100, 101, 102)
KG_WGMMA_HALF(kg_wgmma_bf16, 192, 96, "bf16.bf16", 96, 97, 98, 99, 100, 101, 102)
KG_WGMMA_HALF(kg_wgmma_f16, 256, 128, "f16.f16", 128, 129, 130, 131, 132, 133, 134)
KG_WGMMA_HALF(kg_wgmma_bf16, 256, 128, "bf16.bf16", 128, 129, 130, 131, 132, 133, 134)
KG_WGMMA_BYTE(kg_wgmma_s8, 256, 128, "r", int, "s32", "s8.s8", "", 128, 129, 130)
KG_WGMMA_BYTE(kg_wgmma_e4m3, 256, 128, "f", float, "f32", "e4m3.e4m3", ", 1, 1", 128, 129,
              130)
#undef KG_WGMMA_HALF
#undef KG_WGMMA_BYTE

#endif
