/* Deterministic mutations of small valid files: whatever the bytes, opening either fails
   with one line or gives tensors that can be read. Meant to run under sanitizers too. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"

enum { ROUNDS = 20000, ROOM = 512 };

static uint64_t random_state;

static uint64_t random_bits(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One to four changes: a byte, a bit, an extreme integer, a copied range, or a cut. */
static size_t mutate(uint8_t *bytes, size_t size)
{
    static const uint64_t extremes[] = {
        0,         1,          0x7fffffff, 0x80000000, UINT32_MAX,      UINT64_MAX,
        INT64_MAX, 1ull << 63, 1ull << 62, 1ull << 32, (1ull << 62) - 1};
    static const char json[] = "{}[]\",:\\0123456789-eE.u";
    size_t original = size;
    for (uint64_t n = 1 + random_bits() % 4; n > 0 && size > 16; n--) {
        size_t at = random_bits() % size, length = 1 + random_bits() % 8;
        switch (random_bits() % 6) {
        case 0:
            bytes[at] = (uint8_t)random_bits();
            break;
        case 1:
            bytes[at] ^= (uint8_t)(1u << random_bits() % 8);
            break;
        case 2:
            if (at + 8 <= size)
                memcpy(bytes + at, &extremes[random_bits() % 11],
                       random_bits() % 2 ? 8 : 4);
            break;
        case 3:
            bytes[at] = (uint8_t)json[random_bits() % (sizeof json - 1)];
            break;
        case 4:
            if (at + length <= size)
                memmove(bytes + random_bits() % (size - length), bytes + at, length);
            break;
        default:
            if (random_bits() % 4 == 0)
                size = at;
        }
    }
    return size < original ? size : original;
}

static void fuzz(const uint8_t *base, size_t size, const char *format, int *opened,
                 int *refused)
{
    int fd = memfd_create("kgate-fuzz", MFD_CLOEXEC);
    char path[64], line[1200];
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *opened = *refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t bytes[ROOM];
        struct kg_artifact *artifact;
        struct kg_error error;
        memcpy(bytes, base, size);
        size_t n = mutate(bytes, size);
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bytes, n, 0), n);
        kg_error_init(&error);
        int rc = kg_artifact_open(path, format, false, &artifact, &error);
        if (rc == 0) {
            touch_everything(artifact);
            kg_artifact_close(artifact);
            ++*opened;
        } else {
            assert_null(artifact);
            assert_int_equal(rc, KG_E_FORMAT);
            kg_error_line(&error, line, sizeof line);
            assert_null(strchr(line, '\n'));
            assert_true(strlen(error.text) > 0);
            ++*refused;
        }
    }
    close(fd);
}

/* Both outcomes have to be common, or the mutations test nothing. */
static void check(const char *what, int opened, int refused)
{
    print_message("%s: %d opened, %d refused\n", what, opened, refused);
    assert_true(opened > ROUNDS / 50);
    assert_true(refused > ROUNDS / 50);
}

static void test_gguf(void **state)
{
    uint8_t bytes[G_SIZE];
    int opened, refused;
    (void)state;
    random_state = 1;
    base_gguf(bytes);
    fuzz(bytes, sizeof bytes, "gguf", &opened, &refused);
    check("gguf", opened, refused);
}

static void test_safetensors(void **state)
{
    uint8_t bytes[ROOM];
    int opened, refused;
    (void)state;
    random_state = 2;
    size_t size = safetensors_file(
        bytes, sizeof bytes,
        "{\"__metadata__\":{\"format\":\"pt\",\"e\":\"\\u00e9\\n\"},"
        "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"F8_E4M3\",\"shape\":[],\"data_offsets\":[24,25]}}",
        25);
    fuzz(bytes, size, "safetensors", &opened, &refused);
    check("safetensors", opened, refused);
}

/* A file that ends at the end of a page, cut at every byte of its header in turn: a read
   past the end faults instead of finding the zeros that fill a mapping's last page. */
static void test_gguf_cut_at_page_end(void **state)
{
    enum { PAGE = 4096 };
    uint8_t base[G_SIZE], bytes[PAGE];
    char line[1200];
    (void)state;
    base_gguf(base);
    for (size_t cut = G_STR + 2; cut <= G_INFOS_END; cut++) {
        /* The string value grows until the cut lies at the page's end. */
        uint64_t pad = PAGE - cut, length = 2 + pad;
        memcpy(bytes, base, G_STR);
        memcpy(bytes + G_STR_LEN, &length, 8);
        memset(bytes + G_STR, 'x', length);
        memcpy(bytes + G_STR + length, base + G_STR + 2, cut - (G_STR + 2));
        assert_null(open_bytes(bytes, PAGE, "gguf", line, sizeof line));
        assert_int_equal(strncmp(line, "FILE: offset ", 13), 0);
    }
}

static void test_json_cut_at_page_end(void **state)
{
    enum { PAGE = 4096 };
    static const char text[] =
        "{\"__metadata__\":{\"e\":\"\\ud83d\\ude00\\n\xf0\x9f\x98\x80\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,-1.5e+10,true,null,false],";
    uint8_t bytes[PAGE];
    char line[1200];
    uint64_t length = PAGE - 8;
    (void)state;
    for (size_t cut = 1; cut < sizeof text; cut++) {
        memcpy(bytes, &length, 8);
        bytes[8] = '{';
        memset(bytes + 9, ' ', PAGE - 9);
        memcpy(bytes + PAGE - (cut - 1), text + 1, cut - 1);
        assert_null(open_bytes(bytes, PAGE, "safetensors", line, sizeof line));
        assert_int_equal(strncmp(line, "FILE: offset ", 13), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_cut_at_page_end),
        cmocka_unit_test(test_json_cut_at_page_end),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
