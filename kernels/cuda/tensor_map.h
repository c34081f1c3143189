/*
 * cuda/tensor_map.h: describing a tensor to TMA, on the host.
 */
#ifndef KG_CUDA_TENSOR_MAP_H
#define KG_CUDA_TENSOR_MAP_H

#include <cuda.h>
#include <stdint.h>

/*
 * A map of 16-bit elements with `rank` dimensions (2 or 3), the fastest first: size[i]
 * elements, stride[i] bytes from one index of dimension i + 1 to the next (multiples of 16),
 * box[i] elements that one load takes. The box's rows, 64 elements, are written with the
 * 128-byte swizzle; what lies outside the tensor is written as zeros. `data` is aligned to
 * 16. Returns a kg_status: KG_E_UNSUPPORTED if the driver has no TMA.
 */
int kg_tensor_map_16bit(CUtensorMap *map, const void *data, int rank,
                        const uint64_t *size, const uint64_t *stride,
                        const uint32_t *box);

/*
 * A map of `rows` rows of bytes, row_bytes apart (a multiple of 16), of which one load takes
 * box_rows from any row at any multiple of 16 bytes (elsewhere the device finds an illegal
 * instruction), box_bytes of each (a multiple of 16, at most 512), row after row; what lies
 * outside is written as zeros. Coordinates: pairs of bytes, row.
 */
int kg_tensor_map_rows(CUtensorMap *map, const void *data, uint64_t rows,
                       uint64_t row_bytes, uint32_t box_rows, uint32_t box_bytes);

/* The same for box_bytes of at most 2048. Coordinates: eights of bytes, row. */
int kg_tensor_map_long_rows(CUtensorMap *map, const void *data, uint64_t rows,
                            uint64_t row_bytes, uint32_t box_rows, uint32_t box_bytes);

/* As kg_tensor_map_rows of `sets` sets of rows, set_bytes apart (a multiple of 16, not 0);
   a load takes rows of one set. Coordinates: pairs of bytes, row, set. */
int kg_tensor_map_row_sets(CUtensorMap *map, const void *data, uint64_t sets,
                           uint64_t set_bytes, uint64_t rows, uint64_t row_bytes,
                           uint32_t box_rows, uint32_t box_bytes);

#endif
