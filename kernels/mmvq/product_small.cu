/*
 * The fast product (product.h) of the types with blocks of 32 and 64, in their files' layout.
 */
#include "kernels/mmvq/launch.h"

#define ROW(name) PRODUCT_ROW(KG_LAYOUT_FILE, read_##name, planes_file<fmt_##name>)

const struct product_row product_rows_small[4] = {
    ROW(q4_0),
    ROW(q8_0),
    ROW(mxfp4),
    ROW(nvfp4),
};
