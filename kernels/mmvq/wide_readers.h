/*
 * What the wide product (wide.h) reads otherwise than readers.h: a W for each R, which is R where
 * nothing else is said. More than R it has
 *
 *   TWICE    both sets of codes of a group of 16 go through one instruction, c in the first
 *            half of its k and e in the second, with the same activations in both
 */
#ifndef KGATE_KERNELS_MMVQ_WIDE_READERS_H
#define KGATE_KERNELS_MMVQ_WIDE_READERS_H

#include "kernels/mmvq/readers.h"

template <class R>
struct wide_reader : R {
    enum { TWICE = 0 };
};

/* E2M1 without an offset: code = c + e. c is what the other set leaves of a positive code, and 0
   where the nibble is 8 or more; e is a negative one, and where the nibble is less, -1, or 0
   for the nibble 0. */
template <class R>
struct wide_e2m1 : R {
    enum { TWICE = (int)R::F::GROUP == 16, OFFSET = 0 };
    TABLES(0x04030200u, 0x0d090705u, 0xfdfeff00u, 0xf4f8fafcu)
};
template <>
struct wide_reader<read_mxfp4> : wide_e2m1<read_mxfp4> {
};
template <>
struct wide_reader<read_nvfp4> : wide_e2m1<read_nvfp4> {
};
template <>
struct wide_reader<split_nvfp4> : wide_e2m1<split_nvfp4> {
};

/* Read by wide_quads.h, without an offset. */
template <>
struct wide_reader<read_q3_k> : read_q3_k {
    enum { TWICE = 0, OFFSET = 0 };
};

#endif
