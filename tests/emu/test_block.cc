/*
 * Threads, barriers, shared memory, warp collectives, atomics and faults of the emulated
 * device.
 */
#include <chrono>
#include <vector>

#include "common.h"

static __global__ void index_kernel(uint32_t *out)
{
    uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] +=
        block * 1000 + thread + 1;
}

static void test_index(void **)
{
    std::vector<uint32_t> out(4 * 3 * 2 * 60);
    assert_int_equal(
        KG_LAUNCH(NULL, dim3(4, 3, 2), dim3(5, 4, 3), 0, index_kernel, out.data()), 0);
    for (uint32_t i = 0; i < out.size(); i++)
        assert_int_equal(out[i], i / 60 * 1000 + i % 60 + 1);
}

static __global__ void no_argument_kernel(void)
{
}

static void test_bad_launches(void **)
{
    assert_int_equal(KG_LAUNCH(NULL, 1, 1, 0, no_argument_kernel), 0);
    ASSERT_FAULT(KG_LAUNCH(NULL, 0, 1, 0, no_argument_kernel), "grid");
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 0, 0, no_argument_kernel), "block");
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 1025, 0, no_argument_kernel), "no_argument_kernel: ");
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 1, 227 * 1024 + 1, no_argument_kernel), "227 KiB");
}

/* Reverses each run of 256 through shared memory; `barrier` false is the planted fault. */
template <bool barrier>
__global__ void reverse_kernel(const int *in, int *out)
{
    KG_SHARED(int, tile, [256]);
    int i = (int)threadIdx.x;
    tile[i] = in[blockIdx.x * 256 + i];
    if (barrier)
        __syncthreads();
    out[blockIdx.x * 256 + i] = tile[255 - i];
}

template <bool barrier>
static bool reverses(uint64_t seed)
{
    std::vector<int> in(256 * 8), out(256 * 8);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (int)i * 7;
    kg_emu_configure(seed, 2);
    assert_int_equal(
        KG_LAUNCH(NULL, 8, 256, 0, (reverse_kernel<barrier>), in.data(), out.data()), 0);
    for (int i = 0; i < 256 * 8; i++)
        if (out[(size_t)i] != in[(size_t)(i / 256 * 256 + 255 - i % 256)])
            return false;
    return true;
}

static void test_barrier(void **)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_true(reverses<true>(seed));
        assert_false(reverses<false>(seed));
    }
}

/* In order, thread i + 1 only reads what thread i wrote: the schedule hides that the barrier
   is missing. Shuffled, it shows. */
template <bool barrier>
__global__ void chain_kernel(int *out)
{
    KG_SHARED(int, tile, [64]);
    int i = (int)threadIdx.x;
    tile[i] = i;
    if (barrier)
        __syncthreads();
    out[i] = i == 0 ? 0 : tile[i - 1] + 1;
}

template <bool barrier>
static bool chains(uint64_t seed)
{
    int out[64];
    kg_emu_configure(seed, 1);
    assert_int_equal(KG_LAUNCH(NULL, 1, 64, 0, (chain_kernel<barrier>), out), 0);
    for (int i = 0; i < 64; i++)
        if (out[i] != i)
            return false;
    return true;
}

static void test_shuffled_schedule(void **)
{
    assert_true(chains<false>(0));
    for (uint64_t seed = 1; seed < 20; seed++) {
        assert_false(chains<false>(seed));
        assert_true(chains<true>(seed));
    }
}

/* The second barrier of a loop left out: a fast thread overwrites what a slow one reads. */
template <bool barrier>
__global__ void loop_kernel(int *out)
{
    KG_SHARED(int, value, [64]);
    int i = (int)threadIdx.x, sum = 0;
    for (int round = 0; round < 4; round++) {
        value[i] = round * 64 + i;
        __syncthreads();
        sum += value[63 - i];
        if (barrier)
            __syncthreads();
    }
    out[i] = sum;
}

template <bool barrier>
static bool loops(uint64_t seed)
{
    int out[64];
    kg_emu_configure(seed, 1);
    assert_int_equal(KG_LAUNCH(NULL, 1, 64, 0, (loop_kernel<barrier>), out), 0);
    for (int i = 0; i < 64; i++)
        if (out[i] != 6 * 64 + 4 * (63 - i))
            return false;
    return true;
}

static void test_loop_barrier(void **)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        assert_true(loops<true>(seed));
        assert_false(loops<false>(seed));
    }
}

static __global__ void poison_kernel(uint32_t *out, int dirty)
{
    KG_SHARED(float, tile, [33]);
    KG_SHARED(uint32_t, word, );
    KG_SHARED_DYNAMIC(dynamic);
    out[0] = tile[32] != tile[32];
    out[1] = word;
    out[2] = *(uint32_t *)(dynamic + 96);
    out[3] = (uintptr_t)dynamic % 128;
    if (dirty) {
        tile[32] = 1.0f;
        word = 1;
        dynamic[96] = 1;
    }
}

static void test_poison(void **)
{
    for (int round = 0; round < 3; round++) {
        uint32_t out[4] = {};
        assert_int_equal(KG_LAUNCH(NULL, 1, 1, 100, poison_kernel, out, 1), 0);
        assert_int_equal(out[0], 1);
        assert_int_equal(out[1], 0xffffffffu);
        assert_int_equal(out[2], 0xffffffffu);
        assert_int_equal(out[3], 0);
    }
}

static __global__ void big_shared_kernel(int *out)
{
    KG_SHARED(int, a, [8 * 1024]);
    KG_SHARED(int, b, [5 * 1024]);
    a[0] = b[0] = 1;
    out[0] = a[0];
}

static __global__ void full_shared_kernel(int *out)
{
    KG_SHARED(int, a, [1024]);
    KG_SHARED_DYNAMIC(dynamic);
    a[0] = dynamic[0];
    out[0] = a[0];
}

static void test_shared_limits(void **)
{
    int out = 0;
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 1, 0, big_shared_kernel, &out), "array b");
    assert_int_equal(KG_LAUNCH(NULL, 1, 32, 223 * 1024, full_shared_kernel, &out), 0);
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 32, 223 * 1024 + 16, full_shared_kernel, &out),
                 "232448 bytes");
}

static __global__ void stray_kernel(int at)
{
    KG_SHARED(int, first, [8]);
    KG_SHARED(int, second, [8]);
    second[0] = 0;
    volatile int *p = first;
    p[at] = 5;
}

static void test_stray_write(void **)
{
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* AddressSanitizer would end the test at the write */
#endif
    assert_int_equal(KG_LAUNCH(NULL, 1, 1, 0, stray_kernel, 7), 0);
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 1, 0, stray_kernel, 8), "array first");
    ASSERT_FAULT(KG_LAUNCH(NULL, 1, 1, 0, stray_kernel, -1), "array first");
}

static __global__ void shuffle_kernel(int *out, int width)
{
    int lane = (int)threadIdx.x % 32, v = (int)threadIdx.x * 3;
    int *o = out + threadIdx.x * 5;
    o[0] = __shfl_sync(KG_WARP_ALL, v, lane + 5, width);
    o[1] = __shfl_up_sync(KG_WARP_ALL, v, 3, width);
    o[2] = __shfl_down_sync(KG_WARP_ALL, v, 2, width);
    o[3] = __shfl_xor_sync(KG_WARP_ALL, v, 9, width);
    double d = __shfl_xor_sync(KG_WARP_ALL, v + 0.25, 1, width);
    o[4] = (int)(d * 4);
}

static void test_shuffles(void **)
{
    for (int width = 1; width <= 32; width *= 2)
        for (uint64_t seed = 0; seed < 3; seed++) {
            int out[64 * 5];
            kg_emu_configure(seed, 1);
            assert_int_equal(KG_LAUNCH(NULL, 1, 64, 0, shuffle_kernel, out, width), 0);
            for (int i = 0; i < 64; i++) {
                int lane = i % 32, warp = i - lane, first = lane / width * width;
                int up = lane - 3 >= first ? lane - 3 : lane;
                int down = lane + 2 < first + width ? lane + 2 : lane;
                int x9 = (lane ^ 9) < first + width ? lane ^ 9 : lane;
                int x1 = (lane ^ 1) < first + width ? lane ^ 1 : lane;
                assert_int_equal(out[i * 5], 3 * (warp + first + (lane + 5) % width));
                assert_int_equal(out[i * 5 + 1], 3 * (warp + up));
                assert_int_equal(out[i * 5 + 2], 3 * (warp + down));
                assert_int_equal(out[i * 5 + 3], 3 * (warp + x9));
                assert_int_equal(out[i * 5 + 4], 12 * (warp + x1) + 1);
            }
        }
}

static __global__ void vote_kernel(uint32_t *out)
{
    uint32_t lane = threadIdx.x;
    uint32_t half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    uint32_t *o = out + lane * 9;
    o[0] = __ballot_sync(KG_WARP_ALL, lane % 3 == 0);
    /* Both halves at once, each in its own collectives. */
    if (lane < 16) {
        o[1] = __ballot_sync(half, lane % 2 == 0);
        o[2] = __reduce_add_sync(half, lane);
    } else {
        o[1] = (uint32_t)__shfl_sync(half, (int)lane, 16);
        o[2] = (uint32_t)__any_sync(half, lane == 20) * 2u +
               (uint32_t)__all_sync(half, lane > 16);
    }
    __syncwarp();
    o[3] = (uint32_t)__reduce_min_sync(KG_WARP_ALL, (int)lane - 5);
    o[4] = __reduce_max_sync(KG_WARP_ALL, lane ^ 31u);
    o[5] = __reduce_or_sync(KG_WARP_ALL, 1u << lane % 7) ^
           __reduce_and_sync(KG_WARP_ALL, lane | 8u) ^
           __reduce_xor_sync(KG_WARP_ALL, lane);
    o[6] = __match_any_sync(KG_WARP_ALL, lane % 4);
    o[7] = (uint32_t)__syncthreads_count(lane < 11);
    o[8] = (uint32_t)__syncthreads_or(lane == 31) * 2u +
           (uint32_t)__syncthreads_and(lane != 31);
}

static void test_votes(void **)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t out[32 * 9];
        kg_emu_configure(seed, 1);
        assert_int_equal(KG_LAUNCH(NULL, 1, 32, 0, vote_kernel, out), 0);
        for (uint32_t i = 0; i < 32; i++) {
            assert_int_equal(out[i * 9], 0x49249249u);
            assert_int_equal(out[i * 9 + 1], i < 16 ? 0x5555u : 16u);
            assert_int_equal(out[i * 9 + 2], i < 16 ? 120u : 2u);
            assert_int_equal(out[i * 9 + 3], (uint32_t)-5);
            assert_int_equal(out[i * 9 + 4], 31u);
            assert_int_equal(out[i * 9 + 5], 0x7fu ^ 8u);
            assert_int_equal(out[i * 9 + 6], 0x11111111u << i % 4);
            assert_int_equal(out[i * 9 + 7], 11u);
            assert_int_equal(out[i * 9 + 8], 2u);
        }
    }
}

static __global__ void fault_kernel(int which)
{
    int lane = (int)threadIdx.x;
    switch (which) {
    case 0: /* no fault: a vote of one warp while the other waits at a barrier */
        if (lane >= 32)
            __ballot_sync(KG_WARP_ALL, __any_sync(1u << (lane % 32), 1));
        __syncthreads();
        break;
    case 1: /* a lane has gone */
        if (lane == 7)
            return;
        __syncwarp();
        break;
    case 2: /* different collectives */
        if (lane % 2 == 0)
            __shfl_sync(KG_WARP_ALL, lane, 0);
        else
            __ballot_sync(KG_WARP_ALL, 1);
        break;
    case 3: /* a barrier inside a warp's branch */
        if (lane == 3)
            __syncthreads();
        else
            __shfl_xor_sync(KG_WARP_ALL, lane, 1);
        break;
    case 4: /* not in its own mask */
        __ballot_sync(0xfffffffeu, 1);
        break;
    case 5:
        if (lane == 33)
            __trap();
        __syncthreads();
        break;
    case 6: /* two groups that overlap wait for each other */
        if (lane == 0)
            __syncwarp(3);
        else if (lane == 1)
            __syncwarp(6);
        else if (lane == 2)
            __syncwarp(5);
        break;
    default:
        break;
    }
}

static void test_faults(void **)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        kg_emu_configure(seed, 2);
        assert_int_equal(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 0), 0);
        ASSERT_FAULT(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 1), "lane 7");
        ASSERT_FAULT(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 2),
                     "meet in different warp collectives");
        ASSERT_FAULT(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 3), "deadlock");
        ASSERT_FAULT(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 3),
                     "waits in __syncthreads");
        ASSERT_FAULT(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 4), "leaves it out");
        ASSERT_FAULT(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 5),
                     "thread (33,0,0): the kernel");
        ASSERT_FAULT(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 6), "deadlock");
        /* A block of 20 has no lanes 20..31. */
        ASSERT_FAULT(KG_LAUNCH(NULL, 1, 20, 0, fault_kernel, 2), "names lane 20");
        /* The device works on. */
        assert_int_equal(KG_LAUNCH(NULL, 3, 64, 0, fault_kernel, 9), 0);
        assert_true(reverses<true>(seed));
    }
}

/* Threads that left do not count at a barrier. */
static __global__ void early_exit_kernel(int *out)
{
    KG_SHARED(int, sum, );
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    if (threadIdx.x >= 40)
        return;
    atomicAdd(&sum, 1);
    __syncthreads();
    out[threadIdx.x] = sum;
}

static void test_early_exit(void **)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        int out[40];
        kg_emu_configure(seed, 1);
        assert_int_equal(KG_LAUNCH(NULL, 1, 100, 0, early_exit_kernel, out), 0);
        for (int i = 0; i < 40; i++)
            assert_int_equal(out[i], 40);
    }
}

static __global__ void spin_kernel(int *flag, int *out)
{
    if (threadIdx.x == 17) {
        atomicExch(flag, 1);
    } else {
        while (atomicAdd(flag, 0) == 0)
            __nanosleep(100);
    }
    out[threadIdx.x] = 1;
}

static void test_spin(void **)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        int flag = 0, out[64] = {};
        kg_emu_configure(seed, 1);
        assert_int_equal(KG_LAUNCH(NULL, 1, 64, 0, spin_kernel, &flag, out), 0);
        for (int i = 0; i < 64; i++)
            assert_int_equal(out[i], 1);
    }
}

struct atomics {
    int sum, least, most;
    unsigned bits, taken;
    unsigned long long wide;
    float real;
};

static __global__ void atomics_kernel(struct atomics *a)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&a->sum, i);
    atomicMin(&a->least, -i);
    atomicMax(&a->most, i);
    atomicOr(&a->bits, 1u << i % 32);
    atomicAdd(&a->wide, 1ull << 32);
    atomicAdd(&a->real, 0.5f);
    unsigned seen = atomicAdd(&a->taken, 0u);
    for (;;) {
        unsigned old = atomicCAS(&a->taken, seen, seen + 2);
        if (old == seen)
            break;
        seen = old;
    }
}

static void test_atomics(void **)
{
    kg_emu_configure(0, 2);
    struct atomics a = {};
    assert_int_equal(KG_LAUNCH(NULL, 64, 128, 0, atomics_kernel, &a), 0);
    assert_int_equal(a.sum, 8191 * 8192 / 2);
    assert_int_equal(a.least, -8191);
    assert_int_equal(a.most, 8191);
    assert_int_equal(a.bits, 0xffffffffu);
    assert_int_equal(a.taken, 2 * 8192);
    assert_true(a.wide == 8192ull << 32);
    assert_true(a.real == 4096.0f);
}

static __global__ void matvec_kernel(const int8_t *w, const int8_t *x, int *y, int cols)
{
    int row = (int)blockIdx.x * 4 + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int sum = 0;
    for (int i = lane * 4; i < cols; i += 128)
        sum = __dp4a(*(const int *)(w + (size_t)row * (size_t)cols + i),
                     *(const int *)(x + i), sum);
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(KG_WARP_ALL, sum, offset);
    if (lane == 0)
        y[row] = sum;
}

/* Prints how long a 4096 x 4096 matrix takes; checks every row. */
static void test_matvec(void **)
{
    const int n = 4096;
    std::vector<int8_t> w((size_t)n * n), x(n);
    std::vector<int> y(n), want(n);
    uint32_t state = 1;
    for (int8_t &v : w)
        v = (int8_t)test_random(&state);
    for (int8_t &v : x)
        v = (int8_t)test_random(&state);
    for (int r = 0; r < n; r++)
        for (int c = 0; c < n; c++)
            want[(size_t)r] += w[(size_t)r * n + (size_t)c] * x[(size_t)c];
    kg_emu_configure(0, 0);
    for (int round = 0; round < 3; round++) {
        auto start = std::chrono::steady_clock::now();
        assert_int_equal(KG_LAUNCH(NULL, n / 4, 128, 0, matvec_kernel, w.data(), x.data(),
                                   y.data(), n),
                         0);
        std::chrono::duration<double, std::milli> ms =
            std::chrono::steady_clock::now() - start;
        print_message("matvec 4096 x 4096: %.1f ms\n", ms.count());
    }
    assert_memory_equal(y.data(), want.data(), sizeof(int) * n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),         cmocka_unit_test(test_bad_launches),
        cmocka_unit_test(test_barrier),       cmocka_unit_test(test_shuffled_schedule),
        cmocka_unit_test(test_loop_barrier),  cmocka_unit_test(test_poison),
        cmocka_unit_test(test_shared_limits), cmocka_unit_test(test_stray_write),
        cmocka_unit_test(test_shuffles),      cmocka_unit_test(test_votes),
        cmocka_unit_test(test_faults),        cmocka_unit_test(test_early_exit),
        cmocka_unit_test(test_spin),          cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_matvec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
