/*
 * emu/launch.cc: launches, and the host threads that blocks are spread over.
 *
 * A launch is complete when it returns, so every stream order holds. The calling thread works
 * too. Host threads start with the first launch that can use them and end with
 * kg_emu_shutdown().
 */
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <stdio.h>
#include <string.h>
#include <thread>

#include "kgate/status.h"
#include "runtime.h"

static struct {
    std::mutex launch; /* one at a time */
    std::mutex mutex;  /* guards what follows */
    std::condition_variable work, done;
    std::vector<std::thread> threads;
    struct kg_emu_job *job;
    uint64_t generation; /* counts jobs */
    int n_wanted;        /* helpers that may still join the job */
    int n_busy;
    bool stop;
    uint64_t seed;
    uint64_t n_launches; /* since kg_emu_configure(); varies the shuffle */
    int host_threads;
} pool;

/* The worker of the thread that calls KG_LAUNCH; the others have their own. */
static std::unique_ptr<kg_emu_worker> own_worker;

/* Ends the host threads when the process exits or unloads the provider. */
static struct at_unload {
    ~at_unload()
    {
        kg_emu_shutdown();
    }
} at_unload;

static thread_local char last_error[KG_EMU_TEXT];

const char *kg_emu_last_error(void)
{
    return last_error;
}

void kg_emu_set_error(const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
}

static void take_blocks(struct kg_emu_worker *worker, struct kg_emu_job *job)
{
    worker->job = job;
    while (!job->failed.load(std::memory_order_relaxed)) {
        uint64_t i = job->next_block.fetch_add(1, std::memory_order_relaxed);
        if (i >= job->n_blocks)
            break;
        uint64_t block =
            job->seed == 0
                ? i
                : (uint64_t)(((unsigned __int128)i * job->stride + job->first) %
                             job->n_blocks);
        kg_emu_run_block(worker, block);
    }
    worker->job = NULL;
}

static void helper_main(void)
{
    kg_emu_worker worker;
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(pool.mutex);
    for (;;) {
        pool.work.wait(lock, [&] {
            return pool.stop || (pool.job != NULL && pool.generation != seen);
        });
        if (pool.stop)
            return;
        seen = pool.generation;
        if (pool.n_wanted == 0)
            continue;
        pool.n_wanted--;
        pool.n_busy++;
        struct kg_emu_job *job = pool.job;
        lock.unlock();
        take_blocks(&worker, job);
        lock.lock();
        if (--pool.n_busy == 0)
            pool.done.notify_all();
    }
}

static void run(struct kg_emu_job *job, int n_workers)
{
    if (own_worker == nullptr)
        own_worker.reset(new kg_emu_worker);
    if (n_workers > 1) {
        std::unique_lock<std::mutex> lock(pool.mutex);
        while ((int)pool.threads.size() < kg_emu_host_threads() - 1)
            pool.threads.emplace_back(helper_main);
        pool.job = job;
        pool.generation++;
        pool.n_wanted = n_workers - 1;
        lock.unlock();
        pool.work.notify_all();
    }
    take_blocks(own_worker.get(), job);
    if (n_workers > 1) {
        std::unique_lock<std::mutex> lock(pool.mutex);
        pool.job = NULL;
        pool.done.wait(lock, [] { return pool.n_busy == 0; });
    }
}

void kg_emu_shutdown(void)
{
    std::lock_guard<std::mutex> one(pool.launch);
    {
        std::lock_guard<std::mutex> lock(pool.mutex);
        pool.stop = true;
    }
    pool.work.notify_all();
    for (std::thread &thread : pool.threads)
        thread.join();
    pool.threads.clear();
    pool.stop = false;
    own_worker.reset();
}

void kg_emu_configure(uint64_t schedule_seed, int host_threads)
{
    kg_emu_shutdown();
    std::lock_guard<std::mutex> one(pool.launch);
    pool.seed = schedule_seed;
    pool.host_threads = host_threads;
    pool.n_launches = 0;
}

int kg_emu_host_threads(void)
{
    int n = pool.host_threads;
    if (n <= 0)
        n = (int)std::thread::hardware_concurrency();
    return n < 1 ? 1 : n > 256 ? 256 : n;
}

/* "name<4>" out of "(name<4>), a, b", the text of KG_LAUNCH's arguments. */
static void kernel_name(char name[128], const char *text)
{
    int depth = 0;
    size_t n = 0;
    for (; *text != '\0' && n < 127; text++) {
        if (*text == ',' && depth == 0)
            break;
        depth += (*text == '(' || *text == '<') - (*text == ')' || *text == '>');
        if (*text != '(' && *text != ')')
            name[n++] = *text;
    }
    name[n] = '\0';
}

static int refuse(const char *kernel, const char *what)
{
    snprintf(last_error, sizeof last_error, "%s: %s", kernel, what);
    return KG_E_LAUNCH;
}

int kg_emu_launch(dim3 grid, dim3 block, size_t dynamic_bytes, const char *kernel,
                  void (*body)(const void *), const void *closure)
{
    char name[128];
    kernel_name(name, kernel);
    uint64_t n_threads = (uint64_t)block.x * block.y * block.z;
    if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > 1024 ||
        block.y > 1024 || block.z > 64 || n_threads > KG_EMU_MAX_THREADS)
        return refuse(name, "a block has 1 to 1024 threads");
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu ||
        grid.y > 65535u || grid.z > 65535u)
        return refuse(name, "the grid is empty or too large");
    if (dynamic_bytes > KG_EMU_SHARED_MAX)
        return refuse(name, "more than 227 KiB of dynamic shared memory");

    std::lock_guard<std::mutex> one(pool.launch);
    struct kg_emu_job job = {};
    job.grid = grid;
    job.block = block;
    job.n_threads = (uint32_t)n_threads;
    job.n_blocks = (uint64_t)grid.x * grid.y * grid.z;
    job.dynamic_bytes = dynamic_bytes;
    job.kernel = name;
    job.body = body;
    job.closure = closure;
    if (pool.seed != 0) {
        uint64_t r = (pool.seed + ++pool.n_launches) * 0x9e3779b97f4a7c15u;
        job.seed = r | 1u;
        job.first = (r >> 7) % job.n_blocks;
        job.stride = (r >> 17) % job.n_blocks;
        while (std::gcd(job.stride, job.n_blocks) != 1)
            job.stride++;
    }
    uint64_t n_workers = (uint64_t)kg_emu_host_threads();
    run(&job, (int)(n_workers < job.n_blocks ? n_workers : job.n_blocks));
    if (!job.failed)
        return KG_OK;
    snprintf(last_error, sizeof last_error, "%s", job.text);
    return KG_E_LAUNCH;
}
