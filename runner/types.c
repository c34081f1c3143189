#include "kgate/types.h"

/* Sorted by number. The gaps are numbers that ggml never used in files (4, 5), removed
   (31 to 33, 36 to 38), or that forks give meanings of their own (41 and up). */
static const struct kg_type_info types[] = {
    {KG_TYPE_F32,     "F32",     1,   4  },
    {KG_TYPE_F16,     "F16",     1,   2  },
    {KG_TYPE_Q4_0,    "Q4_0",    32,  18 },
    {KG_TYPE_Q4_1,    "Q4_1",    32,  20 },
    {KG_TYPE_Q5_0,    "Q5_0",    32,  22 },
    {KG_TYPE_Q5_1,    "Q5_1",    32,  24 },
    {KG_TYPE_Q8_0,    "Q8_0",    32,  34 },
    {KG_TYPE_Q8_1,    "Q8_1",    32,  36 },
    {KG_TYPE_Q2_K,    "Q2_K",    256, 84 },
    {KG_TYPE_Q3_K,    "Q3_K",    256, 110},
    {KG_TYPE_Q4_K,    "Q4_K",    256, 144},
    {KG_TYPE_Q5_K,    "Q5_K",    256, 176},
    {KG_TYPE_Q6_K,    "Q6_K",    256, 210},
    {KG_TYPE_Q8_K,    "Q8_K",    256, 292},
    {KG_TYPE_IQ2_XXS, "IQ2_XXS", 256, 66 },
    {KG_TYPE_IQ2_XS,  "IQ2_XS",  256, 74 },
    {KG_TYPE_IQ3_XXS, "IQ3_XXS", 256, 98 },
    {KG_TYPE_IQ1_S,   "IQ1_S",   256, 50 },
    {KG_TYPE_IQ4_NL,  "IQ4_NL",  32,  18 },
    {KG_TYPE_IQ3_S,   "IQ3_S",   256, 110},
    {KG_TYPE_IQ2_S,   "IQ2_S",   256, 82 },
    {KG_TYPE_IQ4_XS,  "IQ4_XS",  256, 136},
    {KG_TYPE_I8,      "I8",      1,   1  },
    {KG_TYPE_I16,     "I16",     1,   2  },
    {KG_TYPE_I32,     "I32",     1,   4  },
    {KG_TYPE_I64,     "I64",     1,   8  },
    {KG_TYPE_F64,     "F64",     1,   8  },
    {KG_TYPE_IQ1_M,   "IQ1_M",   256, 56 },
    {KG_TYPE_BF16,    "BF16",    1,   2  },
    {KG_TYPE_TQ1_0,   "TQ1_0",   256, 54 },
    {KG_TYPE_TQ2_0,   "TQ2_0",   256, 66 },
    {KG_TYPE_MXFP4,   "MXFP4",   32,  17 },
    {KG_TYPE_NVFP4,   "NVFP4",   64,  36 },
    {KG_TYPE_U8,      "U8",      1,   1  },
    {KG_TYPE_F8_E4M3, "F8_E4M3", 1,   1  },
    {KG_TYPE_F8_E8M0, "F8_E8M0", 1,   1  },
    {KG_TYPE_BOOL,    "BOOL",    1,   1  },
    {KG_TYPE_F8_E5M2, "F8_E5M2", 1,   1  },
    {KG_TYPE_U16,     "U16",     1,   2  },
    {KG_TYPE_U32,     "U32",     1,   4  },
    {KG_TYPE_U64,     "U64",     1,   8  },
};

const struct kg_type_info *kg_type_info(int type)
{
    size_t low = 0, high = sizeof types / sizeof types[0];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((int)types[middle].type == type)
            return &types[middle];
        if ((int)types[middle].type < type)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const char *kg_type_name(int type)
{
    const struct kg_type_info *info = kg_type_info(type);
    return info ? info->name : "type?";
}

size_t kg_row_bytes(int type, int64_t cols)
{
    const struct kg_type_info *info = kg_type_info(type);
    size_t bytes;
    if (!info || cols <= 0 || cols % info->block != 0)
        return 0;
    if (__builtin_mul_overflow((uint64_t)(cols / info->block), (uint64_t)info->bytes,
                               &bytes))
        return 0;
    return bytes;
}
