/*
 * device/device.h: everything a kernel source includes.
 *
 * The same source is built by nvcc (provider `cuda`) and, with KG_EMU defined, by the host's
 * C++17 compiler (provider `emu`). CUDA's spelling stays where the emulation can follow it;
 * the rest has a name of kgate's:
 *
 *   KG_SHARED(type, name, dims)   block-shared array: KG_SHARED(float, tile, [16][33]);
 *                                 a scalar has empty dims: KG_SHARED(int, total, );
 *   KG_SHARED_DYNAMIC(name)       `unsigned char *name`: dynamic shared memory, aligned to 128
 *   KG_LAUNCH(stream, grid, block, dynamic_bytes, kernel, args...)   launches, returns a
 *                                 kg_status; a kernel name with commas goes in parentheses
 *   KG_LAUNCH_WITH(...)           the same in clusters, or overlapped: multicast.h, overlap.h
 *   number.h                      half, bf16, e4m3, ue4m3, e8m0, e2m1
 *   memory.h                      unaligned loads, cp.async
 *   mma.h                         ldmatrix, mma.sync
 *   math.h                        exp, log, sin, ... from IEEE operations only
 *
 * Kernels are templates or static functions. Neither build contracts a*b+c: write fmaf
 * where a fused operation is meant.
 */
#ifndef KG_DEVICE_DEVICE_H
#define KG_DEVICE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "kgate/status.h"

#if defined(KG_EMU)
#include "../emu/emu.h"
#include "../emu/intrinsics.h"
#include "../emu/warp.h"
#else
#include "cuda.h"
#endif

#define KG_WARP_ALL 0xffffffffu

#include "math.h"
#include "memory.h"
#include "mma.h"
#include "number.h"

#endif
