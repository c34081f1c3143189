/*
 * Tensor maps, by the driver's function, which the runtime finds: nothing links libcuda.
 */
#include "kernels/cuda/tensor_map.h"

#include "kernels/device/cuda.h"

typedef decltype(&cuTensorMapEncodeTiled) encode_fn;

static encode_fn find_encode(void)
{
    void *address = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000,
                                         cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return nullptr;
    return (encode_fn)address;
}

int kg_tensor_map_16bit(CUtensorMap *map, const void *data, int rank,
                        const uint64_t *size, const uint64_t *stride, const uint32_t *box)
{
    static const encode_fn encode = find_encode();
    const uint32_t step[3] = {1, 1, 1};
    if (!encode)
        return KG_E_UNSUPPORTED;
    const CUresult rc =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, (cuuint32_t)rank,
               (void *)(uintptr_t)data, size, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return rc == CUDA_SUCCESS ? KG_OK : KG_E_INVALID;
}

/* Boxes of rows of one of `sets` in elements of `type`, each of so many bytes. */
static int map_rows(CUtensorMap *map, CUtensorMapDataType type, uint32_t element,
                    const void *data, uint64_t rows, uint64_t row_bytes,
                    uint32_t box_rows, uint32_t box_bytes, uint64_t sets = 1,
                    uint64_t set_bytes = 0)
{
    static const encode_fn encode = find_encode();
    const cuuint64_t size[3] = {row_bytes / element, rows, sets};
    const cuuint64_t stride[2] = {row_bytes, set_bytes};
    const cuuint32_t box[3] = {box_bytes / element, box_rows, 1}, step[3] = {1, 1, 1};
    if (!encode)
        return KG_E_UNSUPPORTED;
    const CUresult rc =
        encode(map, type, set_bytes ? 3 : 2, (void *)(uintptr_t)data, size, stride, box,
               step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return rc == CUDA_SUCCESS ? KG_OK : KG_E_INVALID;
}

int kg_tensor_map_rows(CUtensorMap *map, const void *data, uint64_t rows,
                       uint64_t row_bytes, uint32_t box_rows, uint32_t box_bytes)
{
    return map_rows(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, data, rows, row_bytes,
                    box_rows, box_bytes);
}

int kg_tensor_map_long_rows(CUtensorMap *map, const void *data, uint64_t rows,
                            uint64_t row_bytes, uint32_t box_rows, uint32_t box_bytes)
{
    return map_rows(map, CU_TENSOR_MAP_DATA_TYPE_UINT64, 8, data, rows, row_bytes,
                    box_rows, box_bytes);
}

int kg_tensor_map_row_sets(CUtensorMap *map, const void *data, uint64_t sets,
                           uint64_t set_bytes, uint64_t rows, uint64_t row_bytes,
                           uint32_t box_rows, uint32_t box_bytes)
{
    return map_rows(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, data, rows, row_bytes,
                    box_rows, box_bytes, sets, set_bytes);
}
