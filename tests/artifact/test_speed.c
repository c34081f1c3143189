/* Opening the largest models: an index of 69,187 tensors in 46 shards, a GGUF file of
   70,000 tensors, and one whose metadata hold an array of a million strings. The data are
   holes in sparse files. Processor time is asserted, so that a busy machine does not
   matter; the limits are for optimized builds and are not asserted in others. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
enum { ASSERT_TIME = 1 };
#else
enum { ASSERT_TIME = 0 };
#endif

enum { TENSORS = 69187, SHARDS = 46, ROWS = 2048, COLS = 2048 };

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Opens `path` five times and returns the artifact of the last one. */
static struct kg_artifact *timed_open(const char *path, const char *format, double limit)
{
    struct kg_artifact *artifact = NULL;
    char line[2048];
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        kg_artifact_close(artifact);
        double start = cpu_ms();
        artifact = open_path(path, format, line, sizeof line);
        double ms = cpu_ms() - start;
        best = ms < best ? ms : best;
        assert_string_equal(line, "");
    }
    print_message("%s: %zu tensors opened in %.1f ms (limit %.0f)\n", format,
                  kg_artifact_count(artifact), best, limit);
    if (ASSERT_TIME)
        assert_true(best < limit);
    return artifact;
}

static void tensor_name(char *out, size_t size, int i)
{
    static const char *const parts[] = {"w1.weight", "w1.scale",  "w2.weight",
                                        "w2.scale",  "w3.weight", "w3.scale"};
    snprintf(out, size, "layers.%d.ffn.experts.%d.%s", i / 1536, i / 6 % 256,
             parts[i % 6]);
}

static void write_shard(const char *directory, int shard)
{
    char path[600], name[128];
    size_t count = 0, used = 0, room = 1 << 20;
    char *header = malloc(room);
    assert_non_null(header);
    used += (size_t)snprintf(header, room, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = shard; i < TENSORS; i += SHARDS, count++) {
        uint64_t bytes = (uint64_t)ROWS * COLS;
        tensor_name(name, sizeof name, i);
        used += (size_t)snprintf(header + used, room - used,
                                 ",\"%s\":{\"dtype\":\"I8\",\"shape\":[%d,%d],"
                                 "\"data_offsets\":[%llu,%llu]}",
                                 name, ROWS, COLS, (unsigned long long)(count * bytes),
                                 (unsigned long long)((count + 1) * bytes));
        assert_true(used + 256 < room);
    }
    header[used++] = '}';
    snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", directory, shard + 1,
             SHARDS);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    uint64_t length = used;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &length, 8), 8);
    assert_int_equal(write(fd, header, used), used);
    assert_int_equal(ftruncate(fd, (off_t)(8 + used + count * ROWS * COLS)), 0);
    close(fd);
    free(header);
}

static void test_index(void **state)
{
    char name[128], path[512];
    (void)state;
    snprintf(path, sizeof path, "%s", scratch_directory());
    size_t used = 0, room = 16 << 20;
    char *index = malloc(room);
    assert_non_null(index);
    used += (size_t)snprintf(index, room, "{\n \"weight_map\": {");
    for (int i = 0; i < TENSORS; i++) {
        tensor_name(name, sizeof name, i);
        used += (size_t)snprintf(index + used, room - used,
                                 "%s\n  \"%s\": \"model-%05d-of-%05d.safetensors\"",
                                 i ? "," : "", name, i % SHARDS + 1, SHARDS);
    }
    used += (size_t)snprintf(index + used, room - used, "\n }\n}\n");
    write_file(path, "model.safetensors.index.json", index, used);
    free(index);
    for (int shard = 0; shard < SHARDS; shard++)
        write_shard(path, shard);
    struct kg_artifact *a = timed_open(path, "safetensors-dir", 150);
    assert_int_equal(kg_artifact_count(a), TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        tensor_name(name, sizeof name, i);
        assert_non_null(kg_artifact_find(a, name));
    }
    kg_artifact_close(a);
    remove_directory(path);
}

static uint8_t *at;

static void put(const void *bytes, size_t size)
{
    memcpy(at, bytes, size);
    at += size;
}

static void put32(uint32_t value)
{
    put(&value, 4);
}

static void put64(uint64_t value)
{
    put(&value, 8);
}

static void put_text(const char *text)
{
    put64(strlen(text));
    put(text, strlen(text));
}

static void test_gguf(void **state)
{
    enum { N_TENSORS = 70000, N_TOKENS = 1000000 };
    char name[128], path[512];
    uint8_t *bytes = malloc(64 << 20);
    (void)state;
    assert_non_null(bytes);
    at = bytes;
    put("GGUF", 4);
    put32(3);
    put64(N_TENSORS);
    put64(1);
    put_text("tokenizer.ggml.tokens");
    put32(9);
    put32(8);
    put64(N_TOKENS);
    for (int i = 0; i < N_TOKENS; i++) {
        snprintf(name, sizeof name, "tok%d", i);
        put_text(name);
    }
    for (int i = 0; i < N_TENSORS; i++) {
        tensor_name(name, sizeof name, i);
        put_text(name);
        put32(1);
        put64(8);
        put32(KG_TYPE_F32);
        put64((uint64_t)i * 32);
    }
    size_t size = ((size_t)(at - bytes) + 31) / 32 * 32 + (size_t)N_TENSORS * 32;
    memset(at, 0, size - (size_t)(at - bytes));
    snprintf(path, sizeof path, "%s", scratch_directory());
    write_file(path, "x.gguf", bytes, size);
    free(bytes);
    snprintf(name, sizeof name, "%.100s/x.gguf", path);
    struct kg_artifact *a = timed_open(name, "gguf", 150);
    assert_int_equal(kg_artifact_count(a), N_TENSORS);
    kg_artifact_close(a);
    remove_directory(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
