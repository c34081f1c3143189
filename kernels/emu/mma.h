/*
 * emu/mma.h: mma.sync and cp.async as kernel code calls them; device/mma.h has the fragments.
 */
#ifndef KG_EMU_MMA_H
#define KG_EMU_MMA_H

#include <stdint.h>

enum kg_emu_mma {
    KG_EMU_MMA_S8,
    KG_EMU_MMA_U8S8, /* A unsigned */
    KG_EMU_MMA_F16,
    KG_EMU_MMA_BF16,
    KG_EMU_MMA_E4M3,
};

void kg_emu_mma(enum kg_emu_mma kind, void *d, const uint32_t *a, const uint32_t *b);
void kg_emu_ldmatrix(uint32_t *r, const void *row, int n_matrices, bool transpose);

/* Copies when waited for; `bytes` of the `size` are read, the rest becomes zero. */
void kg_emu_cp_async(void *shared, const void *global, int size, int bytes);
void kg_emu_cp_async_commit(void);
void kg_emu_cp_async_wait(int groups_left);

/* The product for a whole warp: registers of the 32 lanes. */
void kg_emu_mma_warp(enum kg_emu_mma kind, void *const d[32], const uint32_t *const a[32],
                     const uint32_t *const b[32]);

#endif
