/* kgate-mkmodel: what it writes is the same every time, reads back, is marked as
   synthetic, and holds contents that a kernel can meet. argv[1] is the program. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"

static const char *program;

/* Runs the program quietly; returns its exit status. */
static int run(const char *spec, const char *out, const char *format)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", TEST_SPECS, spec);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, 1);
        dup2(null, 2);
        if (format)
            execl(program, program, "--spec", path, "-o", out, "--format", format, NULL);
        else
            execl(program, program, "--spec", path, "-o", out, NULL);
        _exit(127);
    }
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_same_file(const char *a, const char *b)
{
    FILE *x = fopen(a, "rbe"), *y = fopen(b, "rbe");
    assert_non_null(x);
    assert_non_null(y);
    int c, d;
    do {
        c = getc(x);
        d = getc(y);
        assert_int_equal(c, d);
    } while (c != EOF);
    fclose(x);
    fclose(y);
}

/* Byte offset of the f16 scale in a block, -1 if there is none. */
static int half_at(int type)
{
    switch (type) {
    case KG_TYPE_Q2_K:
        return 80;
    case KG_TYPE_Q3_K:
        return 108;
    case KG_TYPE_Q6_K:
        return 208;
    case KG_TYPE_TQ1_0:
        return 52;
    case KG_TYPE_TQ2_0:
        return 64;
    case KG_TYPE_MXFP4:
    case KG_TYPE_NVFP4:
        return -1;
    default:
        return 0;
    }
}

static void check_blocks(const struct kg_tensor *t)
{
    const struct kg_type_info *info = kg_type_info((int)t->type);
    const uint8_t *block = t->data;
    int distinct = 0, before = -1, halves = half_at((int)t->type);
    for (uint64_t i = 0; i < t->bytes / (uint64_t)info->bytes;
         i++, block += info->bytes) {
        int scale = t->type == KG_TYPE_MXFP4 ? block[0] : block[0] | block[1] << 8;
        if (halves >= 0) {
            scale = block[halves] | block[halves + 1] << 8;
            /* Positive, finite, not zero. */
            assert_true(scale > 0 && scale < 0x7c00);
        } else if (t->type == KG_TYPE_NVFP4) {
            for (int j = 0; j < 4; j++)
                assert_true(block[j] > 0 && block[j] < 0x7f);
        } else {
            assert_true(scale > 100 && scale < 140);
        }
        distinct += scale != before;
        before = scale;
    }
    /* Neighbouring blocks seldom share a scale. */
    assert_true((uint64_t)distinct * 4 > t->bytes / (uint64_t)info->bytes);
}

static void test_gguf(void **state)
{
    char one[512], two[512], line[1200];
    const char *path = scratch_directory(), *text = NULL;
    int64_t integer = 0;
    double real = 0, sum = 0;
    (void)state;
    snprintf(one, sizeof one, "%s/1.gguf", path);
    snprintf(two, sizeof two, "%s/2.gguf", path);
    assert_int_equal(run("stand-in.yaml", one, NULL), 0);
    assert_int_equal(run("stand-in.yaml", two, NULL), 0);
    assert_same_file(one, two);
    struct kg_artifact *a = open_path(one, "gguf", line, sizeof line);
    assert_string_equal(line, "");
    assert_int_equal(kg_artifact_count(a), 29);
    assert_true(kg_artifact_is_synthetic(a));
    assert_true(kg_artifact_str(a, "general.name", &text));
    assert_string_equal(text, "every-type (stand-in)");
    assert_true(kg_artifact_i64(a, "test.layers", &integer));
    assert_int_equal(integer, 3);
    assert_true(kg_artifact_f64(a, "test.limit", &real));
    assert_true(real == 10.0);
    assert_true(kg_artifact_i64(a, "test.flag", &integer));
    assert_int_equal(integer, 1);
    assert_true(kg_artifact_str(a, "test.quoted", &text));
    assert_string_equal(text, "12");
    for (size_t i = 0; i < kg_artifact_count(a); i++)
        if (kg_type_info((int)kg_artifact_at(a, i)->type)->block > 1)
            check_blocks(kg_artifact_at(a, i));
    const struct kg_tensor *t = kg_artifact_find(a, "f32");
    for (int i = 0; i < 512 * 24; i++) {
        double value = ((const float *)t->data)[i];
        assert_true(isfinite(value));
        sum += value * value;
    }
    real = sqrt(sum / (512 * 24));
    assert_true(real > 0.01 && real < 0.04);
    t = kg_artifact_find(a, "attn_norm.weight");
    for (int i = 0; i < 512; i++)
        assert_true(fabsf(((const float *)t->data)[i] - 1) < 0.8f);
    /* Every code of Q8_0 but -128, which quantizers do not write. */
    bool seen[256] = {false};
    t = kg_artifact_find(a, "q8_0");
    for (uint64_t i = 0; i < t->bytes; i++)
        if (i % 34 >= 2)
            seen[((const uint8_t *)t->data)[i]] = true;
    for (int code = 0; code < 256; code++)
        assert_int_equal(seen[code], code != 0x80);
    kg_artifact_close(a);
    remove_directory(path);
}

static void test_directory(void **state)
{
    static const char *const names[] = {"model-00001-of-00003.safetensors",
                                        "model-00003-of-00003.safetensors", "config.json",
                                        "model.safetensors.index.json"};
    char one[256], two[256], line[1200];
    int64_t integer = 0;
    (void)state;
    snprintf(one, sizeof one, "%s", scratch_directory());
    snprintf(two, sizeof two, "%s", scratch_directory());
    assert_int_equal(run("stand-in-dir.yaml", one, NULL), 0);
    assert_int_equal(run("stand-in-dir.yaml", two, NULL), 0);
    for (int i = 0; i < 4; i++) {
        char x[512], y[512];
        snprintf(x, sizeof x, "%s/%s", one, names[i]);
        snprintf(y, sizeof y, "%s/%s", two, names[i]);
        assert_same_file(x, y);
    }
    struct kg_artifact *a = open_path(one, "safetensors-dir", line, sizeof line);
    assert_string_equal(line, "");
    assert_int_equal(kg_artifact_count(a), 13);
    assert_true(kg_artifact_is_synthetic(a));
    assert_true(kg_artifact_i64(a, "hidden_size", &integer));
    assert_int_equal(integer, 512);
    const struct kg_tensor *t = kg_artifact_find(a, "d.weight");
    bool seen[256] = {false};
    for (uint64_t i = 0; i < t->bytes; i++)
        seen[((const uint8_t *)t->data)[i]] = true;
    for (int code = 0; code < 256; code++)
        assert_int_equal(seen[code], (code & 0x7f) != 0x7f); /* all but NaN */
    t = kg_artifact_find(a, "a.weight_scale");
    for (uint64_t i = 0; i < t->bytes; i++)
        assert_true(((const uint8_t *)t->data)[i] < 0x7f);
    kg_artifact_close(a);
    remove_directory(one);
    remove_directory(two);
}

static void test_refusals(void **state)
{
    char path[512], line[1200];
    const char *directory = scratch_directory();
    struct stat st;
    (void)state;
    snprintf(path, sizeof path, "%s/x", directory);
    assert_int_equal(run("absent.yaml", path, NULL), 1);
    assert_int_equal(run("stand-in.yaml", path, "safetensors"), 1);
    assert_int_equal(run("stand-in.yaml", path, "onnx"), 1);
    assert_int_equal(stat(path, &st), -1);
    /* Never over something that is not a file. */
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(run("stand-in.yaml", path, NULL), 1);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    unlink(path);
    assert_int_equal(run("stand-in-dir.yaml", path, "safetensors"), 0);
    struct kg_artifact *a = open_path(path, "safetensors", line, sizeof line);
    assert_non_null(a);
    assert_true(kg_artifact_is_synthetic(a));
    kg_artifact_close(a);
    remove_directory(directory);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_refusals),
    };
    if (argc != 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
