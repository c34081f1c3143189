/*
 * The copier on a CUDA device: a stream and pinned staging buffers. See copier.h.
 */
#ifndef KGATE_KERNELS_EXPERT_CACHE_COPIER_CUDA_H
#define KGATE_KERNELS_EXPERT_CACHE_COPIER_CUDA_H

#include <string.h>

#include "kernels/device/device.h"

class copier
{
  public:
    int open(size_t bytes, struct CUstream_st *stream)
    {
        bytes_ = bytes;
        compute_ = stream;
        KG_TRY(check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking)));
        KG_TRY(check(cudaEventCreateWithFlags(&before_, cudaEventDisableTiming)));
        for (struct lane &lane : lanes_) {
            KG_TRY(check(cudaEventCreateWithFlags(&lane.done, cudaEventDisableTiming)));
            KG_TRY(check(cudaMallocHost(&lane.staging, bytes)));
        }
        return KG_OK;
    }

    /* The stream's wait is what lets go of the caller's bytes if they are pinned. */
    int now(void *slot, const void *host)
    {
        KG_TRY(
            check(cudaMemcpyAsync(slot, host, bytes_, cudaMemcpyHostToDevice, compute_)));
        return check(cudaStreamSynchronize(compute_));
    }

    int start(int lane, void *slot, const void *host)
    {
        struct lane &l = lanes_[lane];
        /* join() made the stream wait, not the host: the buffer may still be read. */
        KG_TRY(check(cudaEventSynchronize(l.done)));
        memcpy(l.staging, host, bytes_);
        KG_TRY(check(cudaEventRecord(before_, compute_)));
        KG_TRY(check(cudaStreamWaitEvent(copies_, before_, 0)));
        KG_TRY(check(
            cudaMemcpyAsync(slot, l.staging, bytes_, cudaMemcpyHostToDevice, copies_)));
        return check(cudaEventRecord(l.done, copies_));
    }

    int join(int lane)
    {
        return check(cudaStreamWaitEvent(compute_, lanes_[lane].done, 0));
    }

    void close()
    {
        if (copies_)
            (void)cudaStreamSynchronize(copies_);
        for (struct lane &lane : lanes_) {
            if (lane.done)
                (void)cudaEventDestroy(lane.done);
            if (lane.staging)
                (void)cudaFreeHost(lane.staging);
        }
        if (before_)
            (void)cudaEventDestroy(before_);
        if (copies_)
            (void)cudaStreamDestroy(copies_);
    }

  private:
    struct lane {
        void *staging = nullptr;
        cudaEvent_t done = nullptr;
    };

    static int check(cudaError_t error)
    {
        return kg_cuda_check(error, "expert cache");
    }

    size_t bytes_ = 0;
    cudaStream_t compute_ = nullptr, copies_ = nullptr;
    cudaEvent_t before_ = nullptr;
    struct lane lanes_[COPIER_LANES];
};

#endif
