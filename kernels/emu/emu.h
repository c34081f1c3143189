/*
 * emu/emu.h: the emulated device as kernel code sees it.
 *
 * A CUDA thread runs on a fiber of the host thread that owns its block. Blocks are spread
 * over host threads and run one after another on each. A thread runs until it meets a
 * collective (a barrier, a shuffle, a vote, ldmatrix, mma); the last lane to arrive does
 * the work of all. What CUDA leaves undefined is a launch fault with a text: a collective
 * that names a lane which has exited or never existed, lanes that meet in different
 * collectives, a barrier that a live thread never reaches.
 *
 * Traps:
 * - Threads that spin until another thread writes a flag hang, unless they call
 *   __nanosleep(), which lets others run. Spinning on another block is not supported.
 * - A fault in the host's sense (SIGSEGV, SIGFPE) ends the process.
 */
#ifndef KG_EMU_EMU_H
#define KG_EMU_EMU_H

#include <stddef.h>
#include <stdint.h>

#include "vector.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

/* Shared memory a block can have: static and dynamic, and the static part alone. */
#define KG_EMU_SHARED_MAX (227u * 1024u)
#define KG_EMU_SHARED_STATIC_MAX (48u * 1024u)

struct kg_emu_thread {
    uint3 thread_idx;
    uint3 block_idx;
    dim3 block_dim;
    dim3 grid_dim;
};

/* One declaration of a block-shared array; its address is the array's identity. */
struct kg_emu_shared_tag {
    size_t bytes;
    size_t align;
    const char *name;
};

/* The CUDA thread that runs. initial-exec: one load, also in a shared object. */
extern __thread struct kg_emu_thread *kg_emu_self
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

#define threadIdx (kg_emu_self->thread_idx)
#define blockIdx (kg_emu_self->block_idx)
#define blockDim (kg_emu_self->block_dim)
#define gridDim (kg_emu_self->grid_dim)
static const int warpSize = 32;

/* Storage of a shared array in the running block: 0xFF bytes (NaN in every float format)
   until written, with guard zones around it that are checked when the block ends. */
void *kg_emu_shared(const struct kg_emu_shared_tag *tag);
unsigned char *kg_emu_shared_dynamic(void);

#define KG_SHARED(type, name, dims)                                                      \
    typedef type kg_shared_type_##name dims;                                             \
    static const struct kg_emu_shared_tag kg_shared_tag_##name = {                       \
        sizeof(kg_shared_type_##name), alignof(kg_shared_type_##name), #name};           \
    kg_shared_type_##name &name =                                                        \
        *static_cast<kg_shared_type_##name *>(kg_emu_shared(&kg_shared_tag_##name))

#define KG_SHARED_DYNAMIC(name) unsigned char *name = kg_emu_shared_dynamic()

/* Ends the launch with a text; does not return. */
[[noreturn]] void kg_emu_fault(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Runs body(closure) once for every thread of the grid; returns a kg_status. */
int kg_emu_launch(dim3 grid, dim3 block, size_t dynamic_bytes, const char *kernel,
                  void (*body)(const void *closure), const void *closure)
    __attribute__((warn_unused_result));

/* The kernel is the first of the variable arguments, so that it may stand alone. */
#define KG_LAUNCH(stream, grid, block, dynamic_bytes, ...)                               \
    kg_emu_launch_call(stream, grid, block, dynamic_bytes, #__VA_ARGS__, __VA_ARGS__)

/* A cluster is one block, and launches run one after the other. */
#define KG_LAUNCH_WITH(stream, cluster, overlapped, grid, block, dynamic_bytes, ...)     \
    ((void)(cluster), (void)(overlapped),                                                \
     KG_LAUNCH(stream, grid, block, dynamic_bytes, __VA_ARGS__))

struct CUstream_st;

/* The arguments are converted to the kernel's parameter types once, as CUDA does. */
template <typename... P, typename... A>
static inline int kg_emu_launch_call(struct CUstream_st *, dim3 grid, dim3 block,
                                     size_t dynamic_bytes, const char *name,
                                     void (*kernel)(P...), A... arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "wrong number of kernel arguments");
    auto call = [=]() { kernel(static_cast<P>(arguments)...); };
    typedef decltype(call) closure_type;
    return kg_emu_launch(
        grid, block, dynamic_bytes, name,
        [](const void *closure) { (*static_cast<const closure_type *>(closure))(); },
        &call);
}

#endif
