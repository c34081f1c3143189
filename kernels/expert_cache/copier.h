/*
 * Copies from the host into slots, at once or behind the caller's back.
 *
 * A copier has COPIER_LANES lanes, each with a staging buffer of one block, so that a copy
 * under way does not need the caller's bytes. One thread at a time may call (the cache holds
 * its lock).
 *
 *   open    for blocks of `bytes`; kernels that read slots run on `stream`
 *   now     the slot has the bytes for all that is launched on the stream from now on, and
 *           what was launched before does not see them; the caller's bytes are free
 *   start   begins a copy on a free lane, ordered behind the stream's work so far
 *   join    work launched on the stream from now on sees the lane's bytes; frees the lane
 *   close   waits for what is under way; also after an open that failed
 *
 * Functions return a kg_status.
 */
#ifndef KGATE_KERNELS_EXPERT_CACHE_COPIER_H
#define KGATE_KERNELS_EXPERT_CACHE_COPIER_H

#include <stddef.h>

#include "kgate/status.h"

enum { COPIER_LANES = 4 };

#if defined(KG_EMU)
#include "kernels/expert_cache/copier_emu.h"
#else
#include "kernels/expert_cache/copier_cuda.h"
#endif

#endif
