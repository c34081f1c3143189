/* One fault at a time in small safetensors files and directories, each with its exact
   message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"

#define HEAD(text) "{\"t\":{" text "}}"
#define TENSOR(dtype, shape, offsets)                                                    \
    HEAD("\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets)

static const struct {
    const char *id, *header;
    size_t data;
    const char *line;
} faults[] = {
    {"not-json",                                                           "xx",                                             0,"FILE: offset 8: the header does not begin with '{'"},
    {"space-first",                                                        " {}",                                            0,"FILE: offset 8: the header does not begin with '{'"},
    {"unclosed",                                                           "{\"a\"",                                         0,"FILE: offset 12: JSON: expected ':'"},
    {"unclosed-string",                                                    "{\"abc",                                         0,"FILE: offset 9: JSON: a string that does not end"},
    {"trailing",                                                           "{}x",                                            0,"FILE: offset 10: JSON: text after the end of the value"},
    {"trailing-comma",                                                     "{\"__metadata__\":{},}",                         0,
     "FILE: offset 27: JSON: expected a string"},
    {"no-comma",                                                           "{\"__metadata__\":{} \"t\":1}",                  0,
     "FILE: offset 27: JSON: expected ',' or '}'"},
    {"control-character",                                                  "{\"a\nb\":1}",                                   0,
     "FILE: offset 11: JSON: a control character in a string"},
    {"not-utf8",                                                           "{\"a\xff\":1}",                                  0,"FILE: offset 11: JSON: a string that is not UTF-8"},
    {"overlong-utf8",                                                      "{\"\xc0\x80\":1}",                               0,
     "FILE: offset 10: JSON: a string that is not UTF-8"},
    {"surrogate-utf8",                                                     "{\"\xed\xa0\x80\":1}",                           0,
     "FILE: offset 10: JSON: a string that is not UTF-8"},
    {"escaped-nul",                                                        "{\"a\\u0000b\":1}",                              0,
     "FILE: offset 11: JSON: a NUL character in a string"},
    {"half-surrogate",                                                     "{\"\\ud800x\":1}",                               0,
     "FILE: offset 10: JSON: half of a surrogate pair in a string"},
    {"bad-escape",                                                         "{\"\\x41\":1}",                                  0,"FILE: offset 10: JSON: bad escape in a string"},
    {"name-empty",                                                         "{\"\":{}}",                                      0,
     "FILE: offset 9: a tensor name of 0 bytes, expected 1 to 4096"},
    {"entry-not-object",                                                   "{\"t\":[]}",                                     0,"FILE: offset 13: JSON: expected '{'"},
    {"metadata-not-string",                                                "{\"__metadata__\":{\"a\":1}}",                   0,
     "FILE: offset 29: JSON: expected a string"},
    {"metadata-twice",                                                     "{\"__metadata__\":{},\"__metadata__\":{}}",      0,
     "FILE: offset 27: __metadata__ appears twice"},
    {"metadata-key-twice",                                                 "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}",     0,
     "FILE: offset 32: metadata key a appears twice"},
    {"dtype-missing",                                                      HEAD("\"shape\":[1],\"data_offsets\":[0,4]"),     4,
     "FILE: offset 9: t: dtype is missing"},
    {"shape-missing",                                                      HEAD("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4,
     "FILE: offset 9: t: shape is missing"},
    {"offsets-missing",                                                    HEAD("\"dtype\":\"F32\",\"shape\":[1]"),          4,
     "FILE: offset 9: t: data_offsets is missing"},
    {"key-unknown",                                                        HEAD("\"strides\":[1]"),                          4,
     "FILE: offset 14: t: unknown key \"strides\""},
    {"key-twice",                                                          HEAD("\"dtype\":\"F32\",\"dtype\":\"F32\""),      4,
     "FILE: offset 28: t: duplicate key \"dtype\""},
    {"dtype-f4",                                                           TENSOR("F4",                                      "[8]","[0,4]"), 4,
     "FILE: offset 22: t: dtype F4 is not supported (no kernel reads it)"},
    {"dtype-f6", TENSOR("F6_E2M3",                                                 "[8]","[0,6]"),6,
     "FILE: offset 22: t: dtype F6_E2M3 is not supported (no kernel reads it)"},
    {"dtype-q4-k",                                                            TENSOR("Q4_K",                                                                                                           "[256]","[0,144]"),144,
     "FILE: offset 22: t: unknown dtype \"Q4_K\""},
    {"dtype-number",HEAD("\"dtype\":1"),0,"FILE: offset 22: JSON: expected a string"},
    {"dim-negative",                                                                    TENSOR("F32",                                                                                                       "[-1]","[0,4]"),                       4,
     "FILE: offset 37: t: a dimension is not an integer from 0 to 2^63-1"},
    {"dim-fraction",                                                                    TENSOR("F32",                                                                                                       "[1.0]","[0,4]"),4,
     "FILE: offset 37: t: a dimension is not an integer from 0 to 2^63-1"},
    {"dim-2-63",                                                                   TENSOR("F32",                                                   "[9223372036854775808]","[0,4]"),4,
     "FILE: offset 37: t: a dimension is not an integer from 0 to 2^63-1"},
    {"dim-leading-zero",                                                             TENSOR("F32","[01]","[0,4]"),4,
     "FILE: offset 37: JSON: a number with a leading zero"},
    {"dim-nan",                                                           TENSOR("F32",                             "[NaN]","[0,4]"),4,
     "FILE: offset 37: JSON: expected a number"},
    {"dims-9", TENSOR("F32",                                                 "[1,1,1,1,1,1,1,1,1]","[0,4]"),4,
     "FILE: offset 36: t: more than 8 dimensions"},
    {"product-overflows",                                                            TENSOR("U8",                                                                                                           "[4294967296,4294967296]","[0,0]"),0,
     "FILE: offset 9: t: more than 2^63-1 elements"},
    {"product-overflows-beside-0",TENSOR("U8",           "[4294967296,0,4294967296]",                                                "[0,0]"),                                                                                                                                                      0,
     "FILE: offset 9: t: more than 2^63-1 elements"},
    {"bytes-overflow",                                                                    TENSOR("F32",                                                                                                             "[4611686018427387904]","[0,0]"),0,
     "FILE: offset 9: t: more than 2^63-1 bytes"},
    {"size-short",                                                                   TENSOR("F32",                                                                           "[2]","[0,4]"),4,
     "FILE: offset 9: t: data_offsets span 4 bytes, expected 8 for F32 and its shape"},
    {"size-zero-with-data",                                           TENSOR("F32","[0]","[0,4]"),4,
     "FILE: offset 9: t: data_offsets span 4 bytes, expected 0 for F32 and its shape"},
    {"offsets-1",                                         TENSOR("F32",                                                                                 "[1]","[0]"),4,
     "FILE: offset 55: t: data_offsets has fewer than 2 numbers"},
    {"offsets-3",                       TENSOR("F32",                                                                       "[1]","[0,4,8]"),4,
     "FILE: offset 55: t: data_offsets has more than 2 numbers"},
    {"offsets-reversed",                                                            TENSOR("F32",                                                                                                           "[1]","[4,0]"),4,
     "FILE: offset 55: t: data_offsets [4, 0], expected a range within the 4 bytes of "
     "data"},
    {"offsets-past-end",TENSOR("F32","[1]","[4,8]"),4,
     "FILE: offset 55: t: data_offsets [4, 8], expected a range within the 4 bytes of "
     "data"},
    {"offsets-negative",                                                                    TENSOR("F32",                                                                                                "[1]","[-4,0]"),4,
     "FILE: offset 56: t: a data offset is not an integer from 0 to 2^63-1"},
    {"hole-first",                                                                   TENSOR("F32",                                       "[1]","[4,8]"),8,
     "FILE: offset 9: t: a hole of 4 bytes before its data"},
    {"hole-last",                                                               TENSOR("F32",                         "[1]","[0,4]"),8,
     "FILE: offset 66: 4 bytes after the last tensor"},
    {"overlap",
     "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},\"a\":{\"dtype\":"
     "\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",                                                                        3,"FILE: offset 9: b: its data overlap those of a"},
    {"same-data",
     "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"a\":{\"dtype\":"
     "\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",                                                           2,"FILE: offset 61: a: its data overlap those of b"},
    {"name-twice",
     "{\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},\"t\":{\"dtype\":"
     "\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",                                                                                                           2,"FILE: offset 60: tensor name t appears twice"},
    {"name-twice-escaped",
     "{\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},\"\\u0074\":{"
     "\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",                                                                                                                                                        2,                                                                                                                             "FILE: offset 60: tensor name t appears twice"                                                                                                                                                                         },
};

static int report(const char *id, const char *got, const char *want, bool opened)
{
    if (!opened && strcmp(got, want) == 0)
        return 0;
    print_error("%s: got  %s\n%s: want %s\n", id, opened ? "(opened)" : got, id, want);
    return 1;
}

static void test_headers(void **state)
{
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        uint8_t bytes[1024];
        char line[1024];
        size_t size =
            safetensors_file(bytes, sizeof bytes, faults[i].header, faults[i].data);
        struct kg_artifact *a = open_bytes(bytes, size, "safetensors", line, sizeof line);
        wrong += report(faults[i].id, line, faults[i].line, a != NULL);
        kg_artifact_close(a);
    }
    assert_int_equal(wrong, 0);
}

static void test_lengths(void **state)
{
    static const struct {
        uint64_t length;
        size_t size;
        const char *line;
    } rows[] = {
        {0,          0,  "FILE: offset 0: the file has 0 bytes, expected a header length of 8"},
        {2,          7,  "FILE: offset 0: the file has 7 bytes, expected a header length of 8"},
        {1,          10, "FILE: offset 0: header length 1, expected 2 to 100000000"           },
        {100000001,  10,
         "FILE: offset 0: header length 100000001, expected 2 to 100000000"                   },
        {UINT64_MAX, 10,
         "FILE: offset 0: header length 18446744073709551615, expected 2 to 100000000"        },
        {3,          10,
         "FILE: offset 0: header length 3, expected at most the 2 bytes left in the "
         "file"                                                                               },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t bytes[16];
        char line[1024];
        memcpy(bytes, &rows[i].length, 8);
        memcpy(bytes + 8, "{}", 2);
        assert_null(open_bytes(bytes, rows[i].size, "safetensors", line, sizeof line));
        assert_string_equal(line, rows[i].line);
    }
}

static void test_opens(void **state)
{
    uint8_t bytes[1024];
    char line[1024];
    const char *text = NULL;
    size_t size = safetensors_file(
        bytes, sizeof bytes,
        "{\"__metadata__\":{\"a\":\"\\u00e9\\ud83d\\ude00\\n\"},"
        "\"two\":{\"data_offsets\":[1,13],\"shape\":[2,3],\"dtype\":\"BF16\"},"
        "\"one\":{\"dtype\":\"F8_E8M0\",\"shape\":[],\"data_offsets\":[0,1]},"
        "\"none\":{\"dtype\":\"I64\",\"shape\":[0,5],\"data_offsets\":[13,13]}}   ",
        13);
    (void)state;
    struct kg_artifact *a = open_bytes(bytes, size, "safetensors", line, sizeof line);
    assert_string_equal(line, "");
    assert_int_equal(kg_artifact_count(a), 3);
    const struct kg_tensor *t = kg_artifact_at(a, 1);
    assert_string_equal(t->name, "two");
    assert_int_equal(t->type, KG_TYPE_BF16);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->ne[0], 3);
    assert_int_equal(t->ne[1], 2);
    assert_int_equal(t->ne[2], 1);
    assert_int_equal(t->bytes, 12);
    assert_string_equal(kg_artifact_at(a, 0)->name, "one");
    assert_int_equal(kg_artifact_at(a, 0)->n_dims, 0);
    assert_int_equal(kg_artifact_find(a, "none")->bytes, 0);
    assert_true(kg_artifact_str(a, "a", &text));
    assert_string_equal(text, "\xc3\xa9\xf0\x9f\x98\x80\n");
    touch_everything(a);
    kg_artifact_close(a);
}

#define INDEX(map) "{\"metadata\":{\"total_size\":4},\"weight_map\":{" map "}}"
#define SHARD TENSOR("F32", "[1]", "[0,4]")

static const struct {
    const char *id, *index, *config;
    const char *line;
} dir_faults[] = {
    {"absolute",         INDEX("\"t\":\"/etc/passwd\""),                    NULL,
     "FILE/model.safetensors.index.json: offset 47: shard \"/etc/passwd\" is outside the "
     "directory, expected the plain name of a file in it"                                                                                                      },
    {"parent",           INDEX("\"t\":\"../s\""),                           NULL,
     "FILE/model.safetensors.index.json: offset 47: shard \"../s\" is outside the "
     "directory, expected the plain name of a file in it"                                                                                                      },
    {"dot-dot",          INDEX("\"t\":\"..\""),                             NULL,
     "FILE/model.safetensors.index.json: offset 47: shard \"..\" is outside the "
     "directory, expected the plain name of a file in it"                                                                                                      },
    {"below",            INDEX("\"t\":\"sub/s\""),                          NULL,
     "FILE/model.safetensors.index.json: offset 47: shard \"sub/s\" is outside the "
     "directory, expected the plain name of a file in it"                                                                                                      },
    {"escaped-slash",    INDEX("\"t\":\"..\\u002fs\""),                     NULL,
     "FILE/model.safetensors.index.json: offset 47: shard \"../s\" is outside the "
     "directory, expected the plain name of a file in it"                                                                                                      },
    {"empty-name",       INDEX("\"t\":\"\""),                               NULL,
     "FILE/model.safetensors.index.json: offset 47: shard \"\" is outside the directory, "
     "expected the plain name of a file in it"                                                                                                                 },
    {"link-to-nothing",  INDEX("\"t\":\"dangling\""),                       NULL,
     "FILE/dangling: cannot be opened: No such file or directory"                                                                                              },
    {"link-to-itself",   INDEX("\"t\":\"loop\""),                           NULL,
     "FILE/loop: cannot be opened: Too many levels of symbolic links"                                                                                          },
    {"link-to-device",   INDEX("\"t\":\"device\""),                         NULL,
     "FILE/device: is a device, pipe or socket, expected a file"                                                                                               },
    {"link-to-folder",   INDEX("\"t\":\"folder\""),                         NULL,
     "FILE/folder: is a directory, expected a file"                                                                                                            },
    {"fifo",             INDEX("\"t\":\"fifo\""),                           NULL,
     "FILE/fifo: is a device, pipe or socket, expected a file"                                                                                                 },
    {"shard-missing",    INDEX("\"t\":\"none\""),                           NULL,
     "FILE/none: cannot be opened: No such file or directory"                                                                                                  },
    {"tensor-missing",   INDEX("\"u\":\"s\""),                              NULL,
     "FILE/model.safetensors.index.json: weight_map places u in s, which has no such "
     "tensor"                                                                                                                                                  },
    {"tensor-elsewhere", INDEX("\"t\":\"s\",\"v\":\"s2\""),                 NULL,
     "FILE/model.safetensors.index.json: weight_map places v in s2, which has no such "
     "tensor"                                                                                                                                                  },
    {"tensor-twice",     INDEX("\"t\":\"s\",\"t\":\"s2\""),                 NULL,
     "FILE/model.safetensors.index.json: offset 51: weight_map lists t twice"                                                                                  },
    {"no-map",           "{}",                                              NULL,
     "FILE/model.safetensors.index.json: offset 0: weight_map is missing or empty"                                                                             },
    {"map-empty",        INDEX(""),                                         NULL,
     "FILE/model.safetensors.index.json: offset 0: weight_map is missing or empty"                                                                             },
    {"map-list",         "{\"weight_map\":[]}",                             NULL,
     "FILE/model.safetensors.index.json: offset 14: JSON: expected '{'"                                                                                        },
    {"index-empty",      "",                                                NULL,
     "FILE/model.safetensors.index.json: offset 0: the file has 0 bytes, expected 1 to "
     "100000000"                                                                                                                                               },
    {"index-deep",       "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", NULL,
     "FILE/model.safetensors.index.json: offset 37: JSON: nested more than 32 deep"                                                                            },
    {"config-twice",     INDEX("\"t\":\"s\""),                              "{\"a\":1,\"a\":2}",
     "FILE/config.json: offset 7: key a appears twice"                                                                                                         },
    {"config-list",      INDEX("\"t\":\"s\""),                              "[]",
     "FILE/config.json: offset 0: JSON: expected '{'"                                                                                                          },
    {"config-deep",      INDEX("\"t\":\"s\""),
     "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{"
     "\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":"
     "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{",           "FILE/config.json: offset 160: JSON: nested more than 32 deep"},
    {"no-index",         NULL,                                              NULL,
     "FILE: has neither model.safetensors.index.json nor model.safetensors"                                                                                    },
};

static void test_directories(void **state)
{
    const char *path = scratch_directory();
    char other[512];
    uint8_t bytes[1024];
    char line[2048];
    int wrong = 0;
    (void)state;
    size_t size = safetensors_file(bytes, sizeof bytes, SHARD, 4);
    write_file(path, "s", bytes, size);
    write_file(path, "s2", bytes, size);
    static const char *const links[][2] = {
        {"dangling", "none"     },
        {"loop",     "loop"     },
        {"device",   "/dev/zero"},
        {"folder",   "."        },
    };
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        snprintf(other, sizeof other, "%s/%s", path, links[i][0]);
        assert_int_equal(symlink(links[i][1], other), 0);
    }
    snprintf(other, sizeof other, "%s/fifo", path);
    assert_int_equal(mkfifo(other, 0600), 0);
    for (size_t i = 0; i < sizeof dir_faults / sizeof dir_faults[0]; i++) {
        const char *index = dir_faults[i].index, *config = dir_faults[i].config;
        snprintf(other, sizeof other, "%s/config.json", path);
        unlink(other);
        snprintf(other, sizeof other, "%s/model.safetensors.index.json", path);
        unlink(other);
        if (index)
            write_file(path, "model.safetensors.index.json", index, strlen(index));
        if (config)
            write_file(path, "config.json", config, strlen(config));
        struct kg_artifact *a = open_path(path, "safetensors-dir", line, sizeof line);
        wrong += report(dir_faults[i].id, line, dir_faults[i].line, a != NULL);
        kg_artifact_close(a);
    }
    remove_directory(path);
    assert_int_equal(wrong, 0);
}

static void test_directory_opens(void **state)
{
    static const char config[] =
        "{\"a\":{\"b\":{\"c\":-3}},\"f\":10.0,\"s\":\"x\",\"n\":null,"
        "\"l\":[0.0,Infinity],\"b\":true,"
        "\"kgate\":{\"synthetic\":true}}";
    static const char index[] = INDEX("\"t\":\"s\"");
    const char *path = scratch_directory(), *text = NULL;
    uint8_t bytes[1024];
    char line[1024], file[512];
    int64_t integer = 0;
    double real = 0;
    struct kg_error error;
    (void)state;
    /* "unlisted" is in the shard but not in weight_map: not handed out. */
    size_t size = safetensors_file(
        bytes, sizeof bytes,
        "{\"unlisted\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}",
        5);
    write_file(path, "s", bytes, size);
    write_file(path, "config.json", config, strlen(config));
    write_file(path, "model.safetensors.index.json", index, strlen(index));
    struct kg_artifact *a = open_path(path, "safetensors-dir", line, sizeof line);
    assert_string_equal(line, "");
    assert_int_equal(kg_artifact_count(a), 1);
    assert_null(kg_artifact_find(a, "unlisted"));
    assert_memory_equal(kg_artifact_find(a, "t")->data, "ZZZZ", 4);
    assert_true(kg_artifact_i64(a, "a.b.c", &integer));
    assert_int_equal(integer, -3);
    assert_true(kg_artifact_f64(a, "f", &real));
    assert_true(real == 10.0);
    assert_true(kg_artifact_i64(a, "b", &integer));
    assert_int_equal(integer, 1);
    assert_true(kg_artifact_str(a, "s", &text));
    assert_false(kg_artifact_i64(a, "n", &integer));
    assert_false(kg_artifact_f64(a, "l", &real));
    assert_true(kg_artifact_is_synthetic(a));
    kg_error_init(&error);
    assert_int_equal(kg_artifact_unchanged(a, &error), 0);
    snprintf(file, sizeof file, "%s/s", path);
    assert_int_equal(truncate(file, 20), 0);
    assert_int_equal(kg_artifact_unchanged(a, &error), KG_E_IO);
    snprintf(line, sizeof line, "changed while in use: it has 20 bytes, %zu when opened",
             size);
    assert_string_equal(error.text, line);
    kg_artifact_close(a);
    remove_directory(path);
}

/* As in a Hugging Face cache: every file of the directory is a link to a blob elsewhere. */
static void test_directory_of_links(void **state)
{
    static const char index[] = INDEX("\"t\":\"s\"");
    static const char *const names[] = {"s", "config.json",
                                        "model.safetensors.index.json"};
    char blobs[256], line[1024], target[512], link[512];
    uint8_t bytes[1024];
    int64_t integer = 0;
    (void)state;
    snprintf(blobs, sizeof blobs, "%s", scratch_directory());
    const char *path = scratch_directory();
    write_file(blobs, "s", bytes, safetensors_file(bytes, sizeof bytes, SHARD, 4));
    write_file(blobs, "config.json", "{\"a\":5}", 7);
    write_file(blobs, "model.safetensors.index.json", index, strlen(index));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(target, sizeof target, "%s/%s", blobs, names[i]);
        snprintf(link, sizeof link, "%s/%s", path, names[i]);
        assert_int_equal(symlink(target, link), 0);
    }
    struct kg_artifact *a = open_path(path, "safetensors-dir", line, sizeof line);
    assert_string_equal(line, "");
    assert_memory_equal(kg_artifact_find(a, "t")->data, "ZZZZ", 4);
    assert_true(kg_artifact_i64(a, "a", &integer));
    assert_int_equal(integer, 5);
    kg_artifact_close(a);
    /* A blob that is gone is not a config.json that was never there. */
    snprintf(target, sizeof target, "%s/config.json", blobs);
    assert_int_equal(unlink(target), 0);
    a = open_path(path, "safetensors-dir", line, sizeof line);
    assert_null(a);
    assert_non_null(strstr(line, "config.json: cannot be opened: No such file"));
    remove_directory(path);
    remove_directory(blobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens),           cmocka_unit_test(test_headers),
        cmocka_unit_test(test_lengths),         cmocka_unit_test(test_directories),
        cmocka_unit_test(test_directory_opens), cmocka_unit_test(test_directory_of_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
