/*
 * device/mma_u8.h: mma.sync of unsigned with signed bytes; fragments as in device/mma.h.
 *
 * kg_mma_u8s8_16832_from sets D = A B + c with A unsigned, every element from the same c.
 */
#ifndef KG_DEVICE_MMA_U8_H
#define KG_DEVICE_MMA_U8_H

#include "device.h"

static __device__ __forceinline__ void
kg_mma_u8s8_16832_from(int d[4], const uint32_t a[4], const uint32_t b[2], int c)
{
#if defined(KG_EMU)
    d[0] = d[1] = d[2] = d[3] = c;
    kg_emu_mma(KG_EMU_MMA_U8S8, d, a, b);
#else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c));
#endif
}

#endif
