/*
 * The copier on the emulated device: a thread that copies. See copier.h.
 *
 * Launches are complete when they return there, so that only the copies are asynchronous;
 * that they really are is what makes a read before the wait a data race that
 * ThreadSanitizer sees. Without it, a copy begins when somebody waits for it, and otherwise
 * late, so that a read before the wait finds what the slot held before.
 */
#ifndef KGATE_KERNELS_EXPERT_CACHE_COPIER_EMU_H
#define KGATE_KERNELS_EXPERT_CACHE_COPIER_EMU_H

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <stdlib.h>
#include <string.h>
#include <system_error>
#include <thread>

struct CUstream_st;

class copier
{
  public:
    int open(size_t bytes, struct CUstream_st *)
    {
        bytes_ = bytes;
        for (struct lane &lane : lanes_) {
            lane.staging = malloc(bytes);
            if (!lane.staging)
                return KG_E_MEMORY;
        }
        try {
            thread_ = std::thread([this] { work(); });
        } catch (const std::system_error &) {
            return KG_E_MEMORY;
        }
        return KG_OK;
    }

    int now(void *slot, const void *host)
    {
        memcpy(slot, host, bytes_);
        return KG_OK;
    }

    int start(int lane, void *slot, const void *host)
    {
        memcpy(lanes_[lane].staging, host, bytes_);
        std::lock_guard<std::mutex> lock(mutex_);
        lanes_[lane].slot = slot;
        lanes_[lane].queued = true;
        lanes_[lane].due = std::chrono::steady_clock::now() + LATE;
        wake_.notify_all();
        return KG_OK;
    }

    int join(int lane)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        lanes_[lane].wanted = true;
        wake_.notify_all();
        wake_.wait(lock, [&] { return !lanes_[lane].queued; });
        lanes_[lane].wanted = false;
        return KG_OK;
    }

    void close()
    {
        if (thread_.joinable()) {
            {
                std::lock_guard<std::mutex> lock(mutex_);
                ends_ = true;
                wake_.notify_all();
            }
            thread_.join();
        }
        for (struct lane &lane : lanes_)
            free(lane.staging);
    }

  private:
#if defined(__SANITIZE_THREAD__)
    static constexpr std::chrono::milliseconds LATE{0};
#else
    static constexpr std::chrono::milliseconds LATE{20};
#endif

    struct lane {
        void *staging = nullptr;
        void *slot = nullptr;
        bool queued = false, wanted = false;
        std::chrono::steady_clock::time_point due;
    };

    void work()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            struct lane *next = nullptr;
            bool begins = false;
            for (struct lane &lane : lanes_)
                if (lane.queued && !begins) {
                    next = &lane;
                    begins = lane.wanted || ends_;
                }
            if (next && !begins && std::chrono::steady_clock::now() < next->due) {
                wake_.wait_until(lock, next->due);
            } else if (next) {
                lock.unlock();
                memcpy(next->slot, next->staging, bytes_);
                lock.lock();
                next->queued = false;
                wake_.notify_all();
            } else if (ends_) {
                return;
            } else {
                wake_.wait(lock);
            }
        }
    }

    size_t bytes_ = 0;
    struct lane lanes_[COPIER_LANES];
    std::mutex mutex_;
    std::condition_variable wake_;
    std::thread thread_;
    bool ends_ = false;
};

#endif
