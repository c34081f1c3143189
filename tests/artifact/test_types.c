/* Sizes of the types, and what is no type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "kgate/types.h"

static void test_sizes(void **state)
{
    static const struct {
        int type;
        const char *name;
        int64_t cols;
        size_t bytes;
    } rows[] = {
        {KG_TYPE_F32,     "F32",     3,         12  },
        {KG_TYPE_Q4_0,    "Q4_0",    2112,      1188},
        {KG_TYPE_Q8_0,    "Q8_0",    5120,      5440},
        {KG_TYPE_Q3_K,    "Q3_K",    512,       220 },
        {KG_TYPE_Q6_K,    "Q6_K",    256,       210 },
        {KG_TYPE_IQ4_XS,  "IQ4_XS",  512,       272 },
        {KG_TYPE_MXFP4,   "MXFP4",   64,        34  },
        {KG_TYPE_NVFP4,   "NVFP4",   17408,     9792},
        {KG_TYPE_F8_E8M0, "F8_E8M0", 7,         7   },
        {KG_TYPE_U64,     "U64",     2,         16  },
        {KG_TYPE_Q4_0,    "Q4_0",    33,        0   },
        {KG_TYPE_Q4_K,    "Q4_K",    128,       0   },
        {KG_TYPE_F32,     "F32",     0,         0   },
        {KG_TYPE_F32,     "F32",     -1,        0   },
        {KG_TYPE_F64,     "F64",     INT64_MAX, 0   },
        {4,               "type?",   32,        0   },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(kg_type_name(rows[i].type), rows[i].name);
        assert_int_equal(kg_row_bytes(rows[i].type, rows[i].cols), rows[i].bytes);
    }
}

/* Exactly these numbers are types. */
static void test_numbers(void **state)
{
    int count = 0;
    (void)state;
    for (int type = -2; type < 2000; type++) {
        const struct kg_type_info *info = kg_type_info(type);
        bool expected = (type >= 0 && type <= 30 && type != 4 && type != 5) ||
                        type == 34 || type == 35 || type == 39 || type == 40 ||
                        (type >= 1000 && type <= 1007);
        assert_int_equal(info != NULL, expected);
        if (!info)
            continue;
        count++;
        assert_int_equal(info->type, type);
        assert_int_equal(kg_row_bytes(type, info->block), info->bytes);
    }
    assert_int_equal(count, 41);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
