/*
 * bench.h: what the bench drivers share: the provider under test, memory of its device,
 * random numbers, and the time of a launch.
 */
#ifndef KGATE_TESTS_BENCH_H
#define KGATE_TESTS_BENCH_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "kgate/kernels.h"

inline const kg_provider *pv;
inline CUstream_st *stream;
inline std::string filter; /* only lines that contain it are wanted */

inline bool wanted(const std::string &line)
{
    return line.find(filter) != std::string::npos;
}

inline void must(int rc, const char *what)
{
    if (rc == KG_OK)
        return;
    fprintf(stderr, "%s: %d %s\n", what, rc, pv->device->last_error());
    exit(1);
}

/* Sets pv to the provider in the library at `path`. If that fails, or if `has` does not
   find the tables in it, prints why and returns false. */
inline bool load(const char *path, const char *missing, bool (*has)())
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    pv = so ? (const kg_provider *)dlsym(so, KG_PROVIDER_SYMBOL) : nullptr;
    if (pv && has())
        return true;
    fprintf(stderr, "%s: %s\n", path, so ? missing : dlerror());
    return false;
}

inline bool any_device()
{
    int n = 0;
    if (pv->device->count(&n) == KG_OK && n != 0)
        return true;
    fprintf(stderr, "no device\n");
    return false;
}

inline void open_device()
{
    kg_open_options options = {};
    options.size = sizeof options;
    must(pv->device->open(&options), "open");
}

inline uint32_t rnd()
{
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* Device memory that goes with its owner, and passes for a pointer of any type. Every
   byte is `fill` at first, unless that is negative. */
struct memory {
    void *p = nullptr;
    explicit memory(size_t bytes, int fill = -1)
    {
        must(pv->device->alloc(&p, bytes + 256), "alloc");
        if (fill >= 0)
            must(pv->device->fill(p, (uint8_t)fill, bytes + 256), "fill");
    }
    template <typename T>
    explicit memory(const std::vector<T> &from, int fill = -1)
        : memory(from.size() * sizeof(T), fill)
    {
        must(pv->device->upload(p, from.data(), from.size() * sizeof(T)), "upload");
    }
    memory(const memory &) = delete;
    memory(memory &&other) noexcept : p(other.p)
    {
        other.p = nullptr;
    }
    ~memory()
    {
        if (p)
            pv->device->release(p);
    }
    template <typename T>
    operator T *() const
    {
        return (T *)p;
    }
};

/* `n` elements of device memory, when what was launched is done. */
template <typename T>
std::vector<T> fetch(const memory &from, size_t n)
{
    std::vector<T> v(n);
    must(pv->device->sync(stream), "sync");
    must(pv->device->download(v.data(), from, n * sizeof(T)), "download");
    return v;
}

struct timing {
    double median, least;
};

/* Graphs that are timed, those before them that are not, and launches before all. */
struct runs {
    int timed = 15, untimed = 2, launches = 1;
};

/* Microseconds of one launch in a graph of `launches`; `launch` takes its number. */
inline timing time_us(int launches, const std::function<int(int)> &launch, runs n = {})
{
    const kg_device_ops *d = pv->device;
    CUgraphExec_st *graph;
    CUevent_st *from, *to;
    for (int i = 0; i < n.launches; i++)
        must(launch(i), "launch");
    must(d->sync(stream), "sync");
    must(d->graph_begin(stream), "graph_begin");
    for (int i = 0; i < launches; i++)
        must(launch(i), "launch");
    must(d->graph_end(stream, &graph), "graph_end");
    must(d->event_create(&from), "event");
    must(d->event_create(&to), "event");
    std::vector<double> samples;
    for (int i = 0; i < n.untimed + n.timed; i++) {
        double us;
        must(d->event_record(from, stream), "record");
        must(d->graph_launch(graph, stream), "graph_launch");
        must(d->event_record(to, stream), "record");
        must(d->sync(stream), "sync");
        must(d->event_elapsed_us(from, to, &us), "elapsed");
        if (i >= n.untimed)
            samples.push_back(us / launches);
    }
    std::sort(samples.begin(), samples.end());
    d->graph_destroy(graph);
    d->event_destroy(from);
    d->event_destroy(to);
    return {samples[samples.size() / 2], samples[0]};
}

#endif
