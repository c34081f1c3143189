/*
 * emu/runtime.h: inside the emulated device. Kernel code does not see this.
 *
 * A worker is a host thread with one block in work. It owns the fibers, the state of the
 * block's threads and warps, and the arena for shared memory; all are reused from block to
 * block. Fibers never leave their worker, so nothing in here needs a lock.
 *
 * A fiber runs threads one after another. When a thread must wait, its fiber keeps it and
 * another fiber goes on; a kernel without collectives therefore runs on a single fiber
 * without any switch.
 */
#ifndef KG_EMU_RUNTIME_H
#define KG_EMU_RUNTIME_H

#include <atomic>
#include <memory>
#include <stdint.h>
#include <vector>

#include "emu.h"
#include "fiber.h"
#include "warp.h"

enum kg_emu_limits {
    KG_EMU_MAX_THREADS = 1024,
    KG_EMU_MAX_WARPS = 32,
    KG_EMU_TEXT = 512,
};

/* What a lane waits in. */
enum kg_emu_wait {
    KG_EMU_RUNNING,
    KG_EMU_BARRIER,
    KG_EMU_SYNCWARP,
    KG_EMU_SHUFFLE,
    KG_EMU_VOTE,
    KG_EMU_MATCH,
    KG_EMU_REDUCE,
    KG_EMU_LDMATRIX,
    KG_EMU_MMA,
};

struct kg_emu_copy {
    void *to;
    const void *from;
    uint8_t size, bytes;
    uint32_t group;
};

struct kg_emu_lane : kg_emu_thread {
    uint32_t lane;
    struct kg_emu_warp *warp;
    struct kg_emu_fiber *fiber;      /* NULL until the thread has started */
    std::vector<kg_emu_copy> copies; /* cp.async under way, oldest first */
    uint32_t copy_groups;            /* committed so far */
};

/* Lane masks, and for each lane what it brought to the collective it waits in. */
struct kg_emu_warp {
    uint32_t live;    /* started or not, but not exited */
    uint32_t ready;   /* may run */
    uint32_t waiting; /* in a warp collective */
    uint32_t at_barrier;
    uint32_t index;
    struct kg_emu_lane *lanes;
    uint32_t mask[32];
    uint32_t kind[32];  /* kg_emu_wait, and the operation in bits 8.. */
    uint64_t value[32]; /* operand, then result */
    uint64_t result[32];
    int32_t source[32]; /* shuffles: the lane to read */
    void *d[32];        /* mma and ldmatrix: addresses of the registers */
    const uint32_t *a[32];
    const uint32_t *b[32];
};

struct kg_emu_job {
    dim3 grid, block;
    uint32_t n_threads;
    uint64_t n_blocks;
    size_t dynamic_bytes;
    const char *kernel;
    void (*body)(const void *);
    const void *closure;
    uint64_t seed; /* 0: in order */
    uint64_t stride,
        first; /* block order: block i is (i * stride + first) mod n_blocks */
    std::atomic<uint64_t> next_block;
    std::atomic<bool> failed;
    char text[KG_EMU_TEXT]; /* of the first fault */
};

struct kg_emu_shared_slot {
    const struct kg_emu_shared_tag *tag; /* NULL: the dynamic memory */
    unsigned char *data;
    size_t bytes;
};

struct kg_emu_worker {
    struct kg_emu_job *job;
    std::unique_ptr<kg_emu_lane[]> lanes;
    struct kg_emu_warp warps[KG_EMU_MAX_WARPS];
    uint32_t n_warps;
    uint32_t ready_warps; /* warps with a ready lane */
    uint32_t current_warp;
    uint32_t n_live;
    uint32_t n_at_barrier;
    int barrier_count; /* of true predicates so far */
    struct kg_emu_barrier_result barrier_result;
    uint64_t random;

    struct kg_emu_fiber host; /* the host thread's own stack */
    std::vector<std::unique_ptr<kg_emu_fiber>> fibers;
    std::vector<kg_emu_fiber *> idle;
    struct kg_emu_lane *start; /* the thread that a resumed idle fiber shall run */
    bool fault;

    unsigned char *arena;
    size_t arena_used;
    size_t static_bytes;
    std::vector<kg_emu_shared_slot> shared;

    kg_emu_worker();
    ~kg_emu_worker();
    kg_emu_worker(const kg_emu_worker &) = delete;
    kg_emu_worker &operator=(const kg_emu_worker &) = delete;
};

extern __thread struct kg_emu_worker *kg_emu_current
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The running thread. */
static inline struct kg_emu_lane *kg_emu_lane_self(void)
{
    return static_cast<struct kg_emu_lane *>(kg_emu_self);
}

/* block.cc: runs one block to its end, or to a fault, which it leaves in the job. */
void kg_emu_run_block(struct kg_emu_worker *worker, uint64_t block);

/* shared.cc */
void kg_emu_shared_reset(struct kg_emu_worker *worker);
const char *kg_emu_shared_check(struct kg_emu_worker *worker); /* damaged array or NULL */

/* launch.cc */
void kg_emu_configure(uint64_t schedule_seed, int host_threads);
int kg_emu_host_threads(void);
void kg_emu_shutdown(void); /* ends the host threads */
const char *kg_emu_last_error(void);
void kg_emu_set_error(const char *text);

#endif
