/* Small hostile files for the tests: built in memory, opened through a memfd or written
   below a scratch directory. */
#ifndef KG_TESTS_ARTIFACT_BYTES_H
#define KG_TESTS_ARTIFACT_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "runner/artifact.h"

/* A GGUF file of two tensors and three key-values; its offsets are named below. */
enum {
    G_VERSION = 4,
    G_N_TENSORS = 8,
    G_N_KV = 16,
    G_ALIGN_KEY_LEN = 24,
    G_ALIGN_KEY = 32,
    G_ALIGN_TYPE = 49,
    G_ALIGN = 53,
    G_STR_KEY_LEN = 57,
    G_STR_KEY = 65,
    G_STR_TYPE = 68,
    G_STR_LEN = 72,
    G_STR = 80,
    G_ARR_KEY_LEN = 82,
    G_ARR_KEY = 90,
    G_ARR_TYPE = 93,
    G_ARR_ELEMENT = 97,
    G_ARR_COUNT = 101,
    G_ARR_LEN = 109,
    G_T0_NAME_LEN = 118, /* t0, Q8_0 [32, 2]: 68 bytes at data offset 0 */
    G_T0_NAME = 126,
    G_T0_N_DIMS = 128,
    G_T0_NE0 = 132,
    G_T0_NE1 = 140,
    G_T0_TYPE = 148,
    G_T0_OFFSET = 152,
    G_T1_NAME_LEN = 160, /* t1, F32 [4]: 16 bytes at data offset 96 */
    G_T1_NAME = 168,
    G_T1_N_DIMS = 170,
    G_T1_NE0 = 174,
    G_T1_TYPE = 182,
    G_T1_OFFSET = 186,
    G_INFOS_END = 194,
    G_DATA = 224,
    G_SIZE = 336,
};
void base_gguf(uint8_t bytes[G_SIZE]);

/* A safetensors file of the header text and `data_bytes` of data; the size is returned. */
size_t safetensors_file(uint8_t *out, size_t room, const char *header, size_t data_bytes);

/* Opens `bytes` as a file. The error line is written to `line` with the file's name
   replaced by "FILE"; "" if it opened. */
struct kg_artifact *open_bytes(const void *bytes, size_t size, const char *format,
                               char *line, size_t line_size);
/* The same for a path. */
struct kg_artifact *open_path(const char *path, const char *format, char *line,
                              size_t line_size);

/* Reads the first and last byte of every tensor and looks every name up. */
void touch_everything(const struct kg_artifact *artifact);

void write_file(const char *directory, const char *name, const void *bytes, size_t size);
/* A new empty directory below $TMPDIR or /tmp; its path is returned in a static buffer. */
const char *scratch_directory(void);
void remove_directory(const char *path);

#endif
