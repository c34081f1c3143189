/*
 * KG_LAYOUT_SPLIT (kgate/ops/mmvq.h): each field of a block in a plane of its own.
 */
#include <string.h>

#include "plugins/oracle/mmvq.h"

struct field {
    int at, bytes; /* in the file's block */
};

static const struct layout {
    int type;
    struct field fields[4]; /* in the order of the planes */
} layouts[] = {
    {KG_TYPE_Q4_0,  {{2, 16}, {0, 2}}                         },
    {KG_TYPE_NVFP4, {{4, 32}, {0, 4}}                         },
    {KG_TYPE_Q4_K,  {{16, 128}, {0, 16}}                      },
    {KG_TYPE_Q6_K,  {{0, 128}, {128, 64}, {192, 16}, {208, 2}}},
};

bool kg_oracle_planes(int type, const uint8_t *from, uint8_t *to, int64_t blocks)
{
    const struct kg_type_info *info = kg_type_info(type);

    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (layouts[i].type != type)
            continue;
        for (const struct field *f = layouts[i].fields;
             f < layouts[i].fields + 4 && f->bytes; f++)
            for (int64_t b = 0; b < blocks; b++, to += f->bytes)
                memcpy(to, from + b * info->bytes + f->at, (size_t)f->bytes);
        return true;
    }
    return false;
}
