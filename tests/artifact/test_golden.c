/* The golden files, which other software wrote, read back: names, types, shapes and
   offsets as a separate reader printed them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"

struct row {
    const char *name;
    int type;
    int64_t ne[3];
    uint64_t offset; /* from the file's start */
};
static const struct row dtypes[] = {
    {"f32.weight",                   0,  {512, 24, 1}, 3936   },
    {"f32.expected_f32",             0,  {512, 24, 1}, 53088  },
    {"f16.weight",                   1,  {512, 24, 1}, 102240 },
    {"f16.expected_f32",             0,  {512, 24, 1}, 126816 },
    {"bf16.weight",                  30, {512, 24, 1}, 175968 },
    {"bf16.expected_f32",            0,  {512, 24, 1}, 200544 },
    {"q4_0.weight",                  2,  {512, 24, 1}, 249696 },
    {"q4_0.expected_f32",            0,  {512, 24, 1}, 256608 },
    {"q4_1.weight",                  3,  {512, 24, 1}, 305760 },
    {"q4_1.expected_f32",            0,  {512, 24, 1}, 313440 },
    {"q5_0.weight",                  6,  {512, 24, 1}, 362592 },
    {"q5_0.expected_f32",            0,  {512, 24, 1}, 371040 },
    {"q5_1.weight",                  7,  {512, 24, 1}, 420192 },
    {"q5_1.expected_f32",            0,  {512, 24, 1}, 429408 },
    {"q8_0.weight",                  8,  {512, 24, 1}, 478560 },
    {"q8_0.expected_f32",            0,  {512, 24, 1}, 491616 },
    {"q2_K.weight",                  10, {512, 24, 1}, 540768 },
    {"q2_K.expected_f32",            0,  {512, 24, 1}, 544800 },
    {"q3_K.weight",                  11, {512, 24, 1}, 593952 },
    {"q3_K.expected_f32",            0,  {512, 24, 1}, 599232 },
    {"q4_K.weight",                  12, {512, 24, 1}, 648384 },
    {"q4_K.expected_f32",            0,  {512, 24, 1}, 655296 },
    {"q5_K.weight",                  13, {512, 24, 1}, 704448 },
    {"q5_K.expected_f32",            0,  {512, 24, 1}, 712896 },
    {"q6_K.weight",                  14, {512, 24, 1}, 762048 },
    {"q6_K.expected_f32",            0,  {512, 24, 1}, 772128 },
    {"iq4_nl.weight",                20, {512, 24, 1}, 821280 },
    {"iq4_nl.expected_f32",          0,  {512, 24, 1}, 828192 },
    {"iq3_s.weight",                 21, {512, 24, 1}, 877344 },
    {"iq3_s.expected_f32",           0,  {512, 24, 1}, 882624 },
    {"iq4_xs.weight",                23, {512, 24, 1}, 931776 },
    {"iq4_xs.expected_f32",          0,  {512, 24, 1}, 938304 },
    {"mxfp4.weight",                 39, {512, 24, 1}, 987456 },
    {"mxfp4.expected_f32",           0,  {512, 24, 1}, 993984 },
    {"nvfp4.weight",                 40, {512, 24, 1}, 1043136},
    {"nvfp4.expected_f32",           0,  {512, 24, 1}, 1050048},
    {"q4_0.rawbytes",                2,  {512, 24, 1}, 1099200},
    {"q4_0.rawbytes.expected_f32",   0,  {512, 24, 1}, 1106112},
    {"q4_1.rawbytes",                3,  {512, 24, 1}, 1155264},
    {"q4_1.rawbytes.expected_f32",   0,  {512, 24, 1}, 1162944},
    {"q5_0.rawbytes",                6,  {512, 24, 1}, 1212096},
    {"q5_0.rawbytes.expected_f32",   0,  {512, 24, 1}, 1220544},
    {"q5_1.rawbytes",                7,  {512, 24, 1}, 1269696},
    {"q5_1.rawbytes.expected_f32",   0,  {512, 24, 1}, 1278912},
    {"q8_0.rawbytes",                8,  {512, 24, 1}, 1328064},
    {"q8_0.rawbytes.expected_f32",   0,  {512, 24, 1}, 1341120},
    {"q2_K.rawbytes",                10, {512, 24, 1}, 1390272},
    {"q2_K.rawbytes.expected_f32",   0,  {512, 24, 1}, 1394304},
    {"q3_K.rawbytes",                11, {512, 24, 1}, 1443456},
    {"q3_K.rawbytes.expected_f32",   0,  {512, 24, 1}, 1448736},
    {"q4_K.rawbytes",                12, {512, 24, 1}, 1497888},
    {"q4_K.rawbytes.expected_f32",   0,  {512, 24, 1}, 1504800},
    {"q5_K.rawbytes",                13, {512, 24, 1}, 1553952},
    {"q5_K.rawbytes.expected_f32",   0,  {512, 24, 1}, 1562400},
    {"q6_K.rawbytes",                14, {512, 24, 1}, 1611552},
    {"q6_K.rawbytes.expected_f32",   0,  {512, 24, 1}, 1621632},
    {"iq4_nl.rawbytes",              20, {512, 24, 1}, 1670784},
    {"iq4_nl.rawbytes.expected_f32", 0,  {512, 24, 1}, 1677696},
    {"iq3_s.rawbytes",               21, {512, 24, 1}, 1726848},
    {"iq3_s.rawbytes.expected_f32",  0,  {512, 24, 1}, 1732128},
    {"iq4_xs.rawbytes",              23, {512, 24, 1}, 1781280},
    {"iq4_xs.rawbytes.expected_f32", 0,  {512, 24, 1}, 1787808},
    {"mxfp4.rawbytes",               39, {512, 24, 1}, 1836960},
    {"mxfp4.rawbytes.expected_f32",  0,  {512, 24, 1}, 1843488},
    {"nvfp4.rawbytes",               40, {512, 24, 1}, 1892640},
    {"nvfp4.rawbytes.expected_f32",  0,  {512, 24, 1}, 1899552},
};

static const struct row qwen35[] = {
    {"token_embd.weight",      40, {1024, 512, 1},  960    },
    {"blk.0.ffn_gate.weight",  40, {1024, 768, 1},  295872 },
    {"blk.0.ffn_up.weight",    40, {1024, 768, 1},  738240 },
    {"blk.0.ffn_down.weight",  40, {6144, 128, 1},  1180608},
    {"blk.0.attn_gate.weight", 13, {1024, 512, 1},  1622976},
    {"blk.3.attn_q.weight",    12, {1024, 512, 1},  1983424},
    {"blk.0.attn_v.weight",    14, {1024, 256, 1},  2278336},
    {"output.weight",          14, {1024, 1000, 1}, 2493376},
    {"blk.0.ssm_out.weight",   13, {1024, 320, 1},  3333376},
    {"blk.0.ssm_beta.weight",  8,  {1024, 32, 1},   3558656},
    {"blk.0.ssm_alpha.weight", 8,  {1024, 32, 1},   3593472},
    {"blk.0.attn_qkv.weight",  8,  {1024, 512, 1},  3628288},
    {"blk.0.attn_norm.weight", 0,  {1024, 1, 1},    4185344},
};

static const struct row qwen36[] = {
    {"blk.0.ffn_gate_exps.weight",  21, {512, 128, 8},  992    },
    {"blk.0.ffn_down_exps.weight",  23, {256, 256, 8},  226272 },
    {"blk.40.ffn_gate_exps.weight", 11, {512, 128, 8},  504800 },
    {"blk.0.attn_qkv.weight",       8,  {512, 1024, 1}, 730080 },
    {"blk.0.attn_gate.weight",      8,  {512, 512, 1},  1287136},
    {"blk.0.ffn_gate_shexp.weight", 8,  {512, 128, 1},  1565664},
    {"blk.0.ffn_up_shexp.weight",   8,  {512, 128, 1},  1635296},
    {"blk.3.attn_q.weight",         8,  {512, 1024, 1}, 1704928},
    {"blk.3.attn_k.weight",         8,  {512, 128, 1},  2261984},
    {"blk.3.attn_v.weight",         8,  {512, 128, 1},  2331616},
    {"blk.0.ffn_gate_inp.weight",   0,  {512, 256, 1},  2401248},
    {"output.weight",               14, {512, 1000, 1}, 2925536},
};

static struct kg_artifact *open_golden(const char *name, const char *format)
{
    char path[1024], line[1200];
    snprintf(path, sizeof path, "%s/%s", TEST_DATA, name);
    struct kg_artifact *artifact = open_path(path, format, line, sizeof line);
    assert_string_equal(line, "");
    return artifact;
}

static void check_gguf(const char *name, const struct row *rows, size_t count)
{
    struct kg_artifact *a = open_golden(name, "gguf");
    int64_t version = 0;
    const uint8_t *base = NULL;
    assert_int_equal(kg_artifact_count(a), count);
    assert_true(kg_artifact_i64(a, "general.quantization_version", &version));
    assert_int_equal(version, 2);
    for (size_t i = 0; i < count; i++) {
        const struct kg_tensor *t = kg_artifact_at(a, i);
        assert_string_equal(t->name, rows[i].name);
        assert_ptr_equal(kg_artifact_find(a, rows[i].name), t);
        assert_int_equal(t->type, rows[i].type);
        assert_memory_equal(t->ne, rows[i].ne, sizeof rows[i].ne);
        if (i == 0)
            base = (const uint8_t *)t->data - rows[0].offset;
        assert_ptr_equal(t->data, base + rows[i].offset);
        /* The data are padded to 32 and follow each other. */
        if (i + 1 < count)
            assert_int_equal(rows[i].offset + (t->bytes + 31) / 32 * 32,
                             rows[i + 1].offset);
    }
    assert_memory_equal(base, "GGUF", 4);
    kg_artifact_close(a);
}

static void test_gguf(void **state)
{
    (void)state;
    check_gguf("dtypes.gguf", dtypes, sizeof dtypes / sizeof dtypes[0]);
    check_gguf("qwen35-9b-nvfp4-reduced.gguf", qwen35, sizeof qwen35 / sizeof qwen35[0]);
    check_gguf("qwen36-35b-a3b-iq4_xs-reduced.gguf", qwen36,
               sizeof qwen36 / sizeof qwen36[0]);
}

static void test_gguf_contents(void **state)
{
    (void)state;
    struct kg_artifact *a = open_golden("dtypes.gguf", "gguf");
    const struct kg_tensor *t = kg_artifact_find(a, "f32.weight");
    const struct kg_tensor *want = kg_artifact_find(a, "f32.expected_f32");
    const struct kg_tensor *bf16 = kg_artifact_find(a, "bf16.weight");
    const struct kg_tensor *widened = kg_artifact_find(a, "bf16.expected_f32");
    assert_int_equal(t->bytes, 512 * 24 * 4);
    assert_memory_equal(t->data, want->data, t->bytes);
    for (size_t i = 0; i < 512 * 24; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)widened->data + 4 * i, 4);
        assert_int_equal(bits >> 16, ((const uint16_t *)bf16->data)[i]);
    }
    assert_false(kg_artifact_is_synthetic(a));
    kg_artifact_close(a);
    a = open_golden("qwen35-9b-nvfp4-reduced.gguf", "gguf");
    assert_true(kg_artifact_is_synthetic(a)); /* "(reduced shapes)" in general.name */
    kg_artifact_close(a);
}

static void check_tensor(const struct kg_artifact *a, const char *name, int type,
                         int n_dims, int64_t ne0, int64_t ne1)
{
    const struct kg_tensor *t = kg_artifact_find(a, name);
    assert_non_null(t);
    assert_int_equal(t->type, type);
    assert_int_equal(t->n_dims, n_dims);
    assert_int_equal(t->ne[0], ne0);
    assert_int_equal(t->ne[1], ne1);
}

static void test_dsv4(void **state)
{
    static const uint8_t first[8] = {0x99, 0x64, 0x14, 0xe4, 0x17, 0x6c, 0xe7, 0xb2};
    static const uint8_t last[8] = {0x59, 0xef, 0x56, 0x1a, 0x9a, 0xa3, 0x4b, 0xc4};
    int64_t hidden = 0;
    double limit = 0;
    (void)state;
    struct kg_artifact *a = open_golden("dsv4-flash-reduced", "safetensors-dir");
    assert_int_equal(kg_artifact_count(a), 264);
    check_tensor(a, "layers.0.ffn.experts.0.w1.weight_scale_2", KG_TYPE_F32, 0, 1, 1);
    check_tensor(a, "layers.1.ffn.experts.7.w2.weight_scale", KG_TYPE_F8_E4M3, 2, 16,
                 512);
    check_tensor(a, "layers.1.ffn.experts.7.w2.weight", KG_TYPE_U8, 2, 128, 512);
    check_tensor(a, "mtp.0.ffn.experts.7.w1.scale", KG_TYPE_U8, 2, 16, 256);
    const struct kg_tensor *t = kg_artifact_find(a, "mtp.0.ffn.experts.7.w2.weight");
    assert_int_equal(t->bytes, 65536);
    assert_memory_equal(t->data, first, 8);
    assert_memory_equal((const char *)t->data + t->bytes - 8, last, 8);
    assert_true(kg_artifact_i64(a, "hidden_size", &hidden));
    assert_int_equal(hidden, 512);
    assert_true(kg_artifact_f64(a, "swiglu_limit", &limit));
    assert_true(limit == 10.0);
    touch_everything(a);
    kg_artifact_close(a);
}

static void test_dsv4_files(void **state)
{
    static const uint8_t first[8] = {0x84, 0x02, 0xea, 0xbe, 0xbc, 0xfb, 0x57, 0x3e};
    const char *source = NULL;
    (void)state;
    struct kg_artifact *a =
        open_golden("dsv4-flash-reduced/captures.safetensors", "safetensors");
    assert_int_equal(kg_artifact_count(a), 4);
    check_tensor(a, "moe_x.layers.0", KG_TYPE_F32, 2, 512, 32);
    assert_memory_equal(kg_artifact_at(a, 0)->data, first, 8);
    assert_true(kg_artifact_str(a, "source", &source));
    assert_string_equal(source,
                        "transformers DeepseekV4 forward, float32, reduced config");
    kg_artifact_close(a);
    a = open_golden("dsv4-flash-reduced/expected.safetensors", "safetensors");
    assert_int_equal(kg_artifact_count(a), 62);
    check_tensor(a, "layers.0.experts.0.w1.f64", KG_TYPE_F64, 2, 256, 8);
    check_tensor(a, "mtp.0.experts.3.h_codes", KG_TYPE_U8, 2, 256, 8);
    touch_everything(a);
    kg_artifact_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_gguf_contents),
        cmocka_unit_test(test_dsv4),
        cmocka_unit_test(test_dsv4_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
