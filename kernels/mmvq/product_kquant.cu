/*
 * The fast product (product.h) of the types with blocks of 256, in their files' layout.
 */
#include "kernels/mmvq/launch.h"

#define ROW(name) PRODUCT_ROW(KG_LAYOUT_FILE, read_##name, planes_file<fmt_##name>)

const struct product_row product_rows_kquant[5] = {
    ROW(q3_k), ROW(q4_k), ROW(q5_k), ROW(q6_k), ROW(iq4_xs),
};
