/*
 * Of PyTorch what examples/sdpa calls, declarations only: with it a machine without PyTorch
 * checks that the example still fits kgate's headers. It says nothing about PyTorch.
 */
#ifndef TEST_TORCH_H
#define TEST_TORCH_H

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <tuple>

#include <cuda_runtime_api.h>

namespace c10
{
struct Error : std::exception {
    const char *what_without_backtrace() const;
};
struct OutOfMemoryError : Error {
};
struct InferenceMode {
    InferenceMode();
    ~InferenceMode();
};
namespace cuda
{
struct CUDAStream {
};
struct CUDAStreamGuard {
    explicit CUDAStreamGuard(CUDAStream);
    ~CUDAStreamGuard();
};
CUDAStream getStreamFromExternal(cudaStream_t, int);
int current_device();
} // namespace cuda
} // namespace c10

namespace at
{
enum ScalarType { kFloat, kHalf, kBFloat16 };
enum Device { kCUDA };
struct TensorOptions {
    TensorOptions device(Device) const;
    TensorOptions dtype(ScalarType) const;
};
struct Tensor {
    Tensor to(ScalarType) const;
    Tensor repeat_interleave(int64_t, int64_t) const;
    Tensor transpose(int64_t, int64_t) const;
    Tensor reshape(std::initializer_list<int64_t>) const;
    Tensor slice(int64_t, int64_t, int64_t) const;
    Tensor &copy_(const Tensor &);
};
using maybe = std::optional<Tensor>;
using count = std::optional<int64_t>;
using real = std::optional<double>;

Tensor from_blob(void *, std::initializer_list<int64_t>, TensorOptions);
std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t, int64_t>
_efficient_attention_forward(const Tensor &, const Tensor &, const Tensor &, maybe, maybe,
                             maybe, count, count, double, int64_t, bool, real, maybe,
                             count);
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
_flash_attention_forward(const Tensor &, const Tensor &, const Tensor &, maybe, maybe,
                         int64_t, int64_t, double, bool, bool, real, count, count);
std::tuple<Tensor, Tensor, Tensor>
_scaled_dot_product_cudnn_attention(const Tensor &, const Tensor &, const Tensor &, maybe,
                                    bool, double, bool, bool, real);
} // namespace at

#endif
