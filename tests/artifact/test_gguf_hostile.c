/* One fault at a time in a small valid GGUF file, each with its exact message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"

struct patch {
    int at, width;
    uint64_t value;
};

struct fault {
    const char *id;
    size_t size; /* 0: the whole file */
    struct patch patches[3];
    const char *line;
};

#define TWO62 ((uint64_t)1 << 62)

static const struct fault faults[] = {
    {"empty",
     0,                           {{-1, 0, 0}},
     "FILE: offset 0: not a GGUF file: expected the magic \"GGUF\""                                                                          },
    {"magic",
     0,                           {{0, 1, 'g'}},
     "FILE: offset 0: not a GGUF file: expected the magic \"GGUF\""                                                                          },
    {"version-1",
     0,                           {{G_VERSION, 4, 1}},
     "FILE: offset 4: GGUF version 1, expected 2 or 3"                                                                                       },
    {"version-4",
     0,                           {{G_VERSION, 4, 4}},
     "FILE: offset 4: GGUF version 4, expected 2 or 3"                                                                                       },
    {"big-endian",
     0,                           {{G_VERSION, 4, 0x03000000}},
     "FILE: offset 4: a big-endian GGUF file, expected little-endian"                                                                        },
    {"cut-in-version",
     6,                           {{0}},
     "FILE: offset 4: the file ends in the version: expected 4 bytes, 2 left"                                                                },
    {"cut-in-counts",
     20,                          {{0}},
     "FILE: offset 16: the file ends in the number of key-values: expected 8 bytes, 4 "
     "left"                                                                                                                                  },
    {"cut-in-infos",
     190,                         {{0}},
     "FILE: offset 186: the file ends in a tensor's offset: expected 8 bytes, 4 left"                                                        },
    {"cut-in-data",
     335,                         {{0}},
     "FILE: offset 186: t1: 16 bytes at data offset 96, expected to end within the 111 "
     "bytes of data"                                                                                                                         },
    {"cut-before-data",
     200,                         {{0}},
     "FILE: offset 152: t0: 68 bytes at data offset 0, expected to end within the 0 "
     "bytes of data"                                                                                                                         },
    {"n-tensors-negative",
     0,                           {{G_N_TENSORS, 8, UINT64_MAX}},
     "FILE: offset 8: 18446744073709551615 tensors, expected at most the 12 that fit in "
     "the file and the reader"                                                                                                               },
    {"n-tensors-13",
     0,                           {{G_N_TENSORS, 8, 13}},
     "FILE: offset 8: 13 tensors, expected at most the 12 that fit in the file and the "
     "reader"                                                                                                                                },
    {"n-tensors-late",
     0,                           {{G_N_TENSORS, 8, 11}},
     "FILE: offset 8: 11 tensors, expected at most the 8 that fit in the file and the "
     "reader"                                                                                                                                },
    {"n-kv-huge",
     0,                           {{G_N_KV, 8, TWO62}},
     "FILE: offset 16: 4611686018427387904 key-values, expected at most the 22 that fit "
     "in the file and the reader"                                                                                                            },
    {"key-length-past-end",
     0,                           {{G_STR_KEY_LEN, 8, 272}},
     "FILE: offset 57: a key has length 272, expected at most the 271 bytes left in the "
     "file"                                                                                                                                  },
    {"key-length-wraps",
     0,                           {{G_STR_KEY_LEN, 8, UINT64_MAX - 7}},
     "FILE: offset 57: a key has length 18446744073709551608, expected at most the 271 "
     "bytes left in the file"                                                                                                                },
    {"key-empty",
     0,                           {{G_STR_KEY_LEN, 8, 0}},
     "FILE: offset 57: a key has length 0, expected 1 to 65535"                                                                              },
    {"key-nul",                0, {{G_STR_KEY, 1, 0}},                                           "FILE: offset 57: a key contains a NUL byte"},
    {"key-twice",              0, {{G_ARR_KEY + 2, 1, 's'}},                                     "FILE: offset 82: key a.s appears twice"    },
    {"value-type-13",
     0,                           {{G_STR_TYPE, 4, 13}},
     "FILE: offset 68: a.s has value type 13, expected 0 to 12"                                                                              },
    {"string-past-end",
     0,                           {{G_STR_LEN, 8, 1000}},
     "FILE: offset 72: a string value has length 1000, expected at most the 256 bytes "
     "left in the file"                                                                                                                      },
    {"string-nul",
     0,                           {{G_STR, 1, 0}},
     "FILE: offset 72: a string value contains a NUL byte"                                                                                   },
    {"bool-2",
     0,                           {{G_ALIGN_TYPE, 4, 7}, {G_ALIGN, 1, 2}},
     "FILE: offset 53: general.alignment is a bool of value 2, expected 0 or 1"                                                              },
    {"array-of-arrays",
     0,                           {{G_ARR_ELEMENT, 4, 9}},
     "FILE: offset 97: a.l is an array of arrays, expected scalars or strings"                                                               },
    {"array-type-13",
     0,                           {{G_ARR_ELEMENT, 4, 13}},
     "FILE: offset 97: a.l is an array of type 13, expected 0 to 12"                                                                         },
    {"array-strings-past-end",
     0,                           {{G_ARR_COUNT, 8, TWO62}},
     "FILE: offset 97: a.l has 4611686018427387904 elements, expected at most the 28 "
     "that fit in the file"                                                                                                                  },
    {"array-f64-past-end",
     0,                           {{G_ARR_ELEMENT, 4, 12}, {G_ARR_COUNT, 8, 29}},
     "FILE: offset 97: a.l has 29 elements, expected at most the 28 that fit in the "
     "file"                                                                                                                                  },
    {"array-string-length",
     0,                           {{G_ARR_LEN, 8, 220}},
     "FILE: offset 109: an array's string has length 220, expected at most the 219 bytes "
     "left in the file"                                                                                                                      },
    {"alignment-0",
     0,                           {{G_ALIGN, 4, 0}},
     "FILE: offset 49: general.alignment is 0, expected a power of two from 8 to 65536"                                                      },
    {"alignment-24",
     0,                           {{G_ALIGN, 4, 24}},
     "FILE: offset 49: general.alignment is 24, expected a power of two from 8 to 65536"                                                     },
    {"alignment-4",
     0,                           {{G_ALIGN, 4, 4}},
     "FILE: offset 49: general.alignment is 4, expected a power of two from 8 to 65536"                                                      },
    {"alignment-huge",
     0,                           {{G_ALIGN, 4, 0x80000000u}},
     "FILE: offset 49: general.alignment is 2147483648, expected a power of two from 8 "
     "to 65536"                                                                                                                              },
    {"alignment-i32",
     0,                           {{G_ALIGN_TYPE, 4, 5}},
     "FILE: offset 49: general.alignment is of type i32, expected u32"                                                                       },
    {"alignment-f32",
     0,                           {{G_ALIGN_TYPE, 4, 6}},
     "FILE: offset 49: general.alignment is of type f32, expected u32"                                                                       },
    {"name-empty",
     0,                           {{G_T0_NAME_LEN, 8, 0}},
     "FILE: offset 118: a tensor name has length 0, expected 1 to 63"                                                                        },
    {"name-64",
     0,                           {{G_T0_NAME_LEN, 8, 64}},
     "FILE: offset 118: a tensor name has length 64, expected 1 to 63"                                                                       },
    {"name-nul",
     0,                           {{G_T0_NAME + 1, 1, 0}},
     "FILE: offset 118: a tensor name contains a NUL byte"                                                                                   },
    {"name-twice",
     0,                           {{G_T1_NAME + 1, 1, '0'}},
     "FILE: offset 160: tensor name t0 appears twice"                                                                                        },
    {"n-dims-5",
     0,                           {{G_T0_N_DIMS, 4, 5}},
     "FILE: offset 128: t0: n_dims is 5, expected 0 to 4"                                                                                    },
    {"ne-negative",
     0,                           {{G_T0_NE1, 8, UINT64_MAX}},
     "FILE: offset 140: t0: ne[1] is -1, expected at least 1"                                                                                },
    {"ne-zero",
     0,                           {{G_T0_NE1, 8, 0}},
     "FILE: offset 140: t0: ne[1] is 0, expected at least 1"                                                                                 },
    {"ne-product",
     0,                           {{G_T0_NE1, 8, TWO62}},
     "FILE: offset 140: t0: more than 2^63-1 elements"                                                                                       },
 /* Rounding this many bytes up to a block gives 0 in 64 bits. */
    {"ne-bytes-wrap-to-0",
     0,                           {{G_T1_NE0, 8, TWO62 - 1}},
     "FILE: offset 174: t1: more than 2^63-1 bytes"                                                                                          },
    {"ne-bytes-wrap-to-small",
     0,                           {{G_T1_NE0, 8, TWO62 + 4}},
     "FILE: offset 174: t1: more than 2^63-1 bytes"                                                                                          },
    {"ne-ragged",
     0,                           {{G_T0_NE0, 8, 33}},
     "FILE: offset 132: t0: ne[0] is 33, expected a multiple of the 32-element block of "
     "Q8_0"                                                                                                                                  },
    {"type-negative",
     0,                           {{G_T0_TYPE, 4, UINT32_MAX}},
     "FILE: offset 148: t0: type -1 is unknown or was removed from ggml"                                                                     },
    {"type-4-removed",
     0,                           {{G_T0_TYPE, 4, 4}},
     "FILE: offset 148: t0: type 4 is unknown or was removed from ggml"                                                                      },
    {"type-31-removed",
     0,                           {{G_T0_TYPE, 4, 31}},
     "FILE: offset 148: t0: type 31 is unknown or was removed from ggml"                                                                     },
    {"type-38-removed",
     0,                           {{G_T0_TYPE, 4, 38}},
     "FILE: offset 148: t0: type 38 is unknown or was removed from ggml"                                                                     },
    {"type-41-fork",
     0,                           {{G_T0_TYPE, 4, 41}},
     "FILE: offset 148: t0: type 41 is unknown or was removed from ggml"                                                                     },
    {"type-1000-ours",
     0,                           {{G_T0_TYPE, 4, 1000}},
     "FILE: offset 148: t0: type 1000 is unknown or was removed from ggml"                                                                   },
    {"offset-unaligned",
     0,                           {{G_T1_OFFSET, 8, 100}},
     "FILE: offset 186: t1: data offset 100, expected a multiple of 32"                                                                      },
    {"offset-past-end",
     0,                           {{G_T1_OFFSET, 8, 128}},
     "FILE: offset 186: t1: 16 bytes at data offset 128, expected to end within the 112 "
     "bytes of data"                                                                                                                         },
    {"offset-wraps",
     0,                           {{G_T1_OFFSET, 8, UINT64_MAX - 31}},
     "FILE: offset 186: t1: 16 bytes at data offset 18446744073709551584, expected to "
     "end within the 112 bytes of data"                                                                                                      },
    {"overlap",
     0,                           {{G_T1_OFFSET, 8, 64}},
     "FILE: offset 186: t1: its data overlap those of t0"                                                                                    },
    {"overlap-unsorted",
     0,                           {{G_T0_OFFSET, 8, 32}, {G_T1_OFFSET, 8, 0}, {G_T1_NE0, 8, 9}},
     "FILE: offset 152: t0: its data overlap those of t1"                                                                                    },
};

static void test_faults(void **state)
{
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const struct fault *f = &faults[i];
        uint8_t bytes[G_SIZE];
        char line[1024];
        size_t size = f->size ? f->size : sizeof bytes;
        base_gguf(bytes);
        for (int p = 0; p < 3; p++) {
            if (f->patches[p].at < 0)
                size = 0;
            else
                memcpy(bytes + f->patches[p].at, &f->patches[p].value,
                       (size_t)f->patches[p].width);
        }
        struct kg_artifact *artifact = open_bytes(bytes, size, "gguf", line, sizeof line);
        if (artifact || strcmp(line, f->line) != 0) {
            print_error("%s: got  %s\n%s: want %s\n", f->id, artifact ? "(opened)" : line,
                        f->id, f->line);
            wrong++;
        }
        kg_artifact_close(artifact);
    }
    assert_int_equal(wrong, 0);
}

static void test_base_opens(void **state)
{
    uint8_t bytes[G_SIZE];
    char line[1024];
    const char *text = NULL;
    int64_t integer = 0;
    double real = 0;
    (void)state;
    base_gguf(bytes);
    struct kg_artifact *a = open_bytes(bytes, sizeof bytes, "gguf", line, sizeof line);
    assert_string_equal(line, "");
    assert_int_equal(kg_artifact_count(a), 2);
    const struct kg_tensor *t = kg_artifact_find(a, "t1");
    assert_non_null(t);
    assert_memory_equal(t->data, bytes + G_DATA + 96, 16);
    assert_int_equal(t->bytes, 16);
    assert_int_equal(t->ne[0], 4);
    assert_int_equal(t->ne[1], 1);
    assert_null(kg_artifact_find(a, "t2"));
    assert_true(kg_artifact_str(a, "a.s", &text));
    assert_string_equal(text, "hi");
    assert_true(kg_artifact_i64(a, "general.alignment", &integer));
    assert_int_equal(integer, 32);
    assert_true(kg_artifact_f64(a, "general.alignment", &real));
    assert_true(real == 32.0);
    assert_false(kg_artifact_str(a, "a.l", &text));
    assert_false(kg_artifact_i64(a, "a.s", &integer));
    assert_false(kg_artifact_is_synthetic(a));
    kg_artifact_close(a);
}

/* Every value type, signs and limits. */
static void test_values(void **state)
{
    static const struct {
        uint32_t type;
        uint64_t bits;
        bool integer, real;
        int64_t i64;
        double f64;
    } rows[] = {
        {0,  0xff,               true,  true,  255,        255         },
        {1,  0xff,               true,  true,  -1,         -1          },
        {2,  0xffff,             true,  true,  65535,      65535       },
        {3,  0x8000,             true,  true,  -32768,     -32768      },
        {4,  0xffffffff,         true,  true,  4294967295, 4294967295.0},
        {5,  0xffffffff,         true,  true,  -1,         -1          },
        {6,  0x3fc00000,         false, true,  0,          1.5         },
        {7,  1,                  true,  true,  1,          1           },
        {10, 7,                  true,  true,  7,          7           },
        {10, UINT64_MAX,         false, false, 0,          0           },
        {11, UINT64_MAX,         true,  true,  -1,         -1          },
        {12, 0xbff8000000000000, false, true,  0,          -1.5        },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t bytes[64] = "GGUF";
        uint64_t one = 1;
        uint32_t version = 2;
        char line[1024];
        int64_t integer = 0;
        double real = 0;
        memcpy(bytes + 4, &version, 4);
        memcpy(bytes + 16, &one, 8);
        memcpy(bytes + 24, &one, 8);
        bytes[32] = 'k';
        memcpy(bytes + 33, &rows[i].type, 4);
        memcpy(bytes + 37, &rows[i].bits, 8);
        struct kg_artifact *a = open_bytes(bytes, 45, "gguf", line, sizeof line);
        assert_string_equal(line, "");
        assert_int_equal(kg_artifact_i64(a, "k", &integer), rows[i].integer);
        assert_int_equal(kg_artifact_f64(a, "k", &real), rows[i].real);
        assert_true(integer == rows[i].i64 && real == rows[i].f64);
        kg_artifact_close(a);
    }
}

static void test_format_and_file(void **state)
{
    char line[1024];
    (void)state;
    assert_null(open_path("/", "gguf", line, sizeof line));
    assert_string_equal(line, "FILE: is a directory, expected a file");
    assert_null(open_path("/nonexistent", "gguf", line, sizeof line));
    assert_string_equal(line, "FILE: cannot be opened: No such file or directory");
    assert_null(open_path("/dev/null", "safetensors", line, sizeof line));
    assert_string_equal(line, "FILE: is a device, pipe or socket, expected a file");
    assert_null(open_path("/", "onnx", line, sizeof line));
    assert_string_equal(line, "unknown artifact format \"onnx\", expected gguf, "
                              "safetensors or safetensors-dir");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_opens),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_format_and_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
